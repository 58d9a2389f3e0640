"""The API reference of the site: a page for each distribution, from its docstrings.

`docs/conf.py` uses it. Public is what stands in the `__all__` of a module whose path has no
underscore at its beginnings, so a new distribution or module is there without being listed.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import inspect
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import workspace

_PAGE = """\
# {name}

Version {version}: [what it is and how to use it]({folder}/README.md),
[what has changed]({folder}/CHANGELOG.md).

```{{toctree}}
:hidden:

Changes <{folder}/CHANGELOG>
```

{sections}"""
_SECTION = """\
## `{module}`

```{{eval-rst}}
.. automodule:: {module}
{members}{data}```
"""
# Without names it would be all members.
_MEMBERS = """\
   :members: {names}
   :undoc-members:
"""
_DATA = """
.. autodata:: {module}.{name}
{option}"""
#: A longer value says less than the sentence above it.
_LONGEST_VALUE = 80
#: Code between backquotes, and what would be markup outside of them.
_MARKUP = re.compile(r"`[^`]*`|[*|]")


class Reference:
    """What is public in some distributions, which have to be installed."""

    def __init__(self, packages: Iterable[workspace.Package], root: Path) -> None:
        #: By distribution, and in that by module: the names, each where it is met first.
        self.names: dict[str, dict[str, list[str]]] = {}
        self._public: dict[str, str] = {}
        #: Where constants and aliases are defined, by where they are public.
        self._data: dict[str, str] = {}
        self._packages = {package.name: package for package in packages}
        for package in self._packages.values():
            modules = self.names.setdefault(package.name, {})
            for module in public_modules(root / package.source, package.import_name):
                if names := self._names(module):
                    modules[module] = names
        found = Counter(path.rpartition(".")[2] for path in self._public.values())
        #: Names that mean one thing only, whichever module they are written in.
        self._alone = {
            path.rpartition(".")[2]: path
            for path in self._public.values()
            if found[path.rpartition(".")[2]] == 1
        }

    def write(self, folder: Path) -> None:
        """Make `folder` hold the pages, and nothing else."""
        folder.mkdir(exist_ok=True)
        wanted = {folder / f"{name}.md": page for name, page in self.pages().items()}
        for file in folder.iterdir():
            if file not in wanted:
                file.unlink()
        for file, page in wanted.items():
            # An unchanged page is not read again.
            if not file.exists() or file.read_text() != page:
                file.write_text(page)

    def pages(self) -> dict[str, str]:
        """The pages in Markdown, by distribution."""
        return {
            name: _PAGE.format(
                name=name,
                version=self._packages[name].version,
                folder=f"../../{self._packages[name].folder.as_posix()}",
                sections="\n".join(self._section(module) for module in modules.items()),
            )
            for name, modules in self.names.items()
        }

    def data_home(self, path: str) -> str | None:
        """The module that defines a public constant or alias of a type."""
        return self._data.get(path)

    def public_path(self, name: str) -> str | None:
        """Where the reference has what is defined in a private module, or is called so."""
        for path, public in self._public.items():
            if name == path or name.startswith(f"{path}."):
                return public + name.removeprefix(path)
        first, dot, rest = name.partition(".")
        return self._alone[first] + dot + rest if first in self._alone else None

    def _names(self, module: str) -> list[str]:
        loaded = importlib.import_module(module)
        homes = _imported(Path(loaded.__file__ or ""))
        names = []
        for name in loaded.__all__:
            if name == "__version__":
                continue
            thing = getattr(loaded, name)
            # What a module loads at its first use is not seen by autodoc else.
            vars(loaded).setdefault(name, thing)
            public = f"{module}.{name}"
            if inspect.isclass(thing) or inspect.isroutine(thing):
                home = f"{thing.__module__}.{thing.__qualname__}"
            else:
                self._data[public] = homes.get(name, module)
                home = f"{self._data[public]}.{name}"
            if self._public.setdefault(home, public) == public:
                names.append(name)
        return names

    def _section(self, module: tuple[str, list[str]]) -> str:
        path, names = module
        loaded = importlib.import_module(path)
        data = [name for name in names if f"{path}.{name}" in self._data]
        # autodoc takes a value that is imported for somebody else's, unless it is named.
        entries = [
            _DATA.format(
                module=path,
                name=name,
                option="   :no-value:\n" * (len(repr(getattr(loaded, name))) > _LONGEST_VALUE),
            )
            for name in data
        ]
        rest = [name for name in names if name not in data]
        members = _MEMBERS.format(names=", ".join(rest)) if rest else ""
        return _SECTION.format(module=path, members=members, data="".join(entries))


def _imported(file: Path) -> dict[str, str]:
    """Where a module has its names from."""
    return {
        alias.name: node.module
        for node in ast.parse(file.read_text()).body
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    }


def public_modules(source: Path, name: str) -> list[str]:
    """The modules of a distribution whose path has nothing private in it, sorted."""
    files = [file.relative_to(source).with_suffix("") for file in source.rglob("*.py")]
    parts = [file.parts[:-1] if file.name == "__init__" else file.parts for file in files]
    return sorted(
        ".".join((name, *path)) for path in parts if not any(part.startswith("_") for part in path)
    )


def as_markup(lines: list[str]) -> list[str]:
    """A docstring as Sphinx is to read it.

    An indented block is code, as it is in Markdown; names and code within a line stand between
    backquotes, and nothing else is markup.
    """
    result: list[str] = []
    within = False
    for line in lines:
        indented = line.startswith("    ")
        if indented and not within and not (result and result[-1].endswith("::")):
            result += ["", "::", ""]
        within = indented or (within and not line.strip())
        if not indented and result and result[-1].startswith("    ") and line.strip():
            result.append("")
        result.append(line if indented else _MARKUP.sub(_escaped, line))
    return result


def _escaped(found: re.Match[str]) -> str:
    return found[0] if found[0].startswith("`") else f"\\{found[0]}"


def connect(app: Any, reference: Reference) -> None:
    """Hook it into Sphinx."""
    from sphinx.pycode import ModuleAnalyzer  # only who builds the site has it

    def read_docstring(
        _app: Any, what: str, name: str, _object: Any, _options: Any, lines: list[str]
    ) -> None:
        home = reference.data_home(name) if what == "data" else None
        if home is not None:
            # Else it would be that of the value's type.
            comments = ModuleAnalyzer.for_module(home).find_attr_docs()
            lines[:] = comments.get(("", name.rpartition(".")[2]), [])
        lines[:] = as_markup(lines)

    def unlink(app: Any, document: Any) -> None:
        """Make text of what can lead nowhere on the site."""
        here = Path(app.env.doc2path(app.env.docname)).parent
        for node in list(document.findall(lambda node: node.tagname == "pending_xref")):
            target = node["reftarget"]
            # A type of Python's own, which Sphinx would take for a field of the same name.
            is_builtin = node["reftype"] == "class" and hasattr(builtins, target)
            # A folder is there only for those who read the repository.
            if is_builtin or (node["reftype"] == "myst" and (here / target).is_dir()):
                node.replace_self(node.children)

    def resolve(app: Any, env: Any, node: Any, shown: Any) -> Any:
        path = reference.public_path(node["reftarget"]) if node.get("refdomain") == "py" else None
        if path is None:
            return None
        arguments = (env, node["refdoc"], app.builder, "obj", path, node, shown)
        return env.get_domain("py").resolve_xref(*arguments)

    app.connect("autodoc-process-docstring", read_docstring)
    app.connect("doctree-read", unlink)
    app.connect("missing-reference", resolve)
