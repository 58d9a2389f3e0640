"""Finding and running the code of Markdown files."""

from __future__ import annotations

from pathlib import Path

import pytest

from snippets import SnippetFailed, blocks, run

_TEXT = """\
Text.

```python
x = 1
```

1. A list:

   ~~~python
   def f():
       return "```"
   ~~~

````console
$ true
```
````
<!-- file: app.py -->
```python title
assert f() == "`" * 3
```
"""


def test_blocks_are_found_with_their_language_and_place() -> None:
    """Within lists, with other fences inside, and with a name where a comment gives one."""
    found = [(block.language, block.line, block.file_name) for block in blocks(_TEXT)]

    assert found == [
        ("python", 4, None),
        ("python", 10, None),
        ("console", 15, None),
        ("python", 20, "app.py"),
    ]
    assert [block.body for block in blocks(_TEXT)][1] == 'def f():\n    return "```"\n'


def test_blocks_run_in_order_in_one_namespace(tmp_path: Path) -> None:
    """What an earlier block defines, a later one uses; a named one is there as a module too."""
    markdown = tmp_path / "README.md"
    markdown.write_text(
        _TEXT + "\n```python\nimport pathlib\nassert pathlib.Path('app.py').exists()\n```\n"
    )

    run(markdown, tmp_path)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("assert x == 2", "line 2"),
        ("import warnings; warnings.warn('old')", "UserWarning: old"),
        ("raise SystemExit(3)", "fails with 3"),
        ("def f(:", "SyntaxError"),
    ],
)
def test_a_block_that_does_not_run_is_an_error(tmp_path: Path, body: str, expected: str) -> None:
    """A failure, a warning, an exit, a slip of the pen; with the line of the Markdown file."""
    markdown = tmp_path / "README.md"
    markdown.write_text(
        f"```python\nx = 1; {body}\n```\n" if "def" not in body else f"```python\n{body}\n```"
    )

    with pytest.raises(SnippetFailed, match=expected):
        run(markdown, tmp_path)


_FOREIGN = """\
<!-- foreign -->
```python
import a_library_that_nobody_has
```
"""


def test_the_code_of_others_is_not_run(tmp_path: Path) -> None:
    """Its libraries are not installed."""
    markdown = tmp_path / "README.md"
    markdown.write_text(_FOREIGN)

    run(markdown, tmp_path)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (_FOREIGN.replace("import", "import from"), "SyntaxError"),
        (_FOREIGN.replace("<!-- foreign -->\n", ""), "ModuleNotFoundError"),
        (_FOREIGN.replace("-->\n", "-->\n\n"), "ModuleNotFoundError"),
    ],
)
def test_the_code_of_others_is_compiled_and_marked(
    tmp_path: Path, text: str, expected: str
) -> None:
    """A slip of the pen is found there too, and the mark stands right above its block."""
    markdown = tmp_path / "README.md"
    markdown.write_text(text)

    with pytest.raises(SnippetFailed, match=expected):
        run(markdown, tmp_path)


def test_a_part_of_a_file_is_not_run(tmp_path: Path) -> None:
    """Alone it may be no program at all; its file has tests."""
    markdown = tmp_path / "README.md"
    markdown.write_text("<!-- part of src/a.py -->\n```python\n    return 1\n```\n")

    run(markdown, tmp_path)
    assert [block.part_of for block in blocks(markdown.read_text())] == ["src/a.py"]
