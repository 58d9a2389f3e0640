"""The sessions of the workspace: `nox -l` lists them.

Every session runs on the interpreter that runs nox, in an environment of its own, with the
distributions as they are shipped: built wheels, never the source tree. Which distributions
there are stands in their pyprojects alone.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
from collections.abc import Iterable
from pathlib import Path

import nox

ROOT = Path(__file__).parent
sys.path.insert(0, str(ROOT / "tools"))

import workspace  # noqa: E402  # tools/ is on the path only now

nox.needs_version = ">=2025.5.1"
nox.options.default_venv_backend = "uv|virtualenv"
nox.options.download_python = "never"
nox.options.sessions = ["tests"]

# In the background of a shell SIGINT is ignored, by all that is started from here; tests send it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

PACKAGES = workspace.load()
DIST = ROOT / "dist"
#: Where the wheels of this workspace are, as constraints: no index is asked for their names.
CONSTRAINTS = DIST / "constraints.txt"
#: What the wheels were built from.
FINGERPRINT = DIST / "fingerprint.txt"

#: A folder with what a release will publish: tested in place of what is built here.
RELEASE = os.environ.get("HYPERCUBE_TEST_RELEASE")

EXAMPLE = ROOT / "packages/hypercube-jobs/examples/check_links.py"
#: All that a contributor must pass, the quick parts first.
PARTS = ["lint", "types", "docs", *PACKAGES, "distributions", "tools"]
PYTHONS = nox.project.python_versions(
    nox.project.load_toml(ROOT / next(iter(PACKAGES.values())).folder / "pyproject.toml")
)

#: Each measures the failovers of some backends.
FAILOVERS = sorted(file.stem for file in (ROOT / "tools").glob("*_failovers.py"))

#: The releases of Debian whose own Python serves, 12 and 13.
DEBIANS = ("bookworm", "trixie")

# A new release of these may disagree with what nobody touched.
RUFF = "ruff==0.17.6"
MYPY = "mypy==2.4.1"
SITE = ("furo==2025.12.19", "myst-parser==5.2.0", "sphinx==9.0.4")
#: Of the workflows: the schema, and what an attacker would look for.
WORKFLOWS = ("check-jsonschema==0.39.0", "zizmor==1.32.0")
#: From 7.10 on it measures subprocesses by itself.
COVERAGE = "coverage>=7.10"

#: What builds distributions here, in the versions that build releases.
BUILDERS = re.findall(r"(?m)^(?:build|hatchling)==[\w.]+", (ROOT / "tools/release.txt").read_text())

#: The suite that drivers are certified by, and what makes it and other tests leave nothing out.
SUITE = "hypercube-queue-conformance"
EVERYTHING = {"HYPERCUBE_TEST_ALL": "1"}

#: Most tests wait for longer than they compute, so there are more of them than processors.
PARALLEL = ("-n", str(min(4, 2 * (os.cpu_count() or 1))))

#: Prints what an environment has, as constraints.
_INSTALLED = """
from importlib.metadata import distributions
for each in distributions(): print(each.name, each.version, sep="==")
"""

#: What the tests reach in threads, in their children and in those that leave by os._exit. The tests
#: of one distribution import only some of the others.
_COVERAGE_SETTINGS = """
[run]
branch = true
parallel = true
concurrency = thread, multiprocessing
patch = subprocess, _exit
disable_warnings = module-not-imported, no-data-collected
data_file = {0}/data
source_pkgs =
  {1}
[paths]
{2}
[report]
skip_covered = true
show_missing = true
# Nothing runs the body of a protocol, nor what only a type checker reads.
exclude_also =
  ^ *\\.\\.\\.$
  if TYPE_CHECKING:
[html]
directory = {3}/coverage
"""

#: What tools.backends needs, beside the clients of the drivers.
SERVERS = ("psutil", "pytest", "testcontainers")
#: Types of libraries that ship none.
STUBS = ("types-psutil", "types-pymysql")


@nox.session(reuse_venv=True)
def wheels(session: nox.Session) -> None:
    """Build every distribution into dist/: its source archive, and from that its wheel."""
    fingerprint = workspace.fingerprint(PACKAGES.values())
    if FINGERPRINT.exists() and FINGERPRINT.read_text() == fingerprint:
        session.log("dist/ is what the sources would give; delete it to build again")
    else:
        shutil.rmtree(DIST, ignore_errors=True)
        session.install(*BUILDERS)
        for package in PACKAGES.values():
            build = ("python", "-m", "build", "--no-isolation", "--outdir", str(DIST))
            session.run(*build, str(package.folder), silent=True)
        FINGERPRINT.write_text(fingerprint)
    if RELEASE:
        FINGERPRINT.unlink()  # what is put there is for this run
        _take_release(session, Path(RELEASE))
    # Written each time, because the checkout may have moved.
    urls = {package.name: _wheel(session, package).as_uri() for package in PACKAGES.values()}
    CONSTRAINTS.write_text("".join(f"{name} @ {url}\n" for name, url in urls.items()))


@nox.session(requires=["wheels"])
@nox.parametrize("part", [nox.param(part, id=part) for part in PARTS])
def tests(session: nox.Session, part: str) -> None:
    """Everything a change must pass; arguments after -- go to pytest."""
    _test(session, part)


@nox.session(python=PYTHONS, requires=["wheels"])
@nox.parametrize("part", [nox.param(part, id=part) for part in [*PACKAGES, "tools"]])
def nightly(session: nox.Session, part: str) -> None:
    """What CI leaves out: every Python that is installed, every configuration, plain processes.

    And random calls at length, other ones each time.
    """
    certified = part in PACKAGES and SUITE in PACKAGES[part].test_names()
    _test(session, part, *(("--conformance-examples", "200") if certified else ()), **EVERYTHING)
    if part in PACKAGES and _needs_servers(PACKAGES[part].tests):
        # As root with the packages of the system; some server may have none, which is no failure.
        way = {"HYPERCUBE_TEST_FROM": "apt" if os.geteuid() == 0 else "binary"}
        session.env.update(way, HYPERCUBE_TEST_REQUIRE="")
        _pytest(session, PACKAGES[part].tests, "--install-servers", **EVERYTHING)


@nox.session(venv_backend="none")
@nox.parametrize("suite", [nox.param(suite, id=suite) for suite in DEBIANS])
def bare(session: nox.Session, suite: str) -> None:
    """Both commands of README.md on a bare Debian, as root; `-- COMMAND` runs another one there."""
    tool = (sys.executable, "tools/bare.py", suite, session.create_tmp())
    session.run(*tool, *session.posargs, external=True)


@nox.session(requires=["wheels"], venv_backend="uv")
@nox.parametrize("part", [nox.param(part, id=part) for part in PACKAGES])
def oldest(session: nox.Session, part: str) -> None:
    """The tests with the oldest versions of what a distribution says it works with."""
    package = PACKAGES[part]
    optional = [item for items in package.extras.values() for item in items]
    # Only what is named here is taken in its oldest version, not what that needs in its turn.
    named = (str(_wheel(session, package)), *package.dependencies, *optional)
    _install(session, "--resolution", "lowest-direct", *named)
    # The tests must not bring newer ones along.
    oldest = Path(session.create_tmp()) / "oldest.txt"
    oldest.write_text(str(session.run("python", "-c", _INSTALLED, silent=True)))
    servers = SERVERS if _needs_servers(package.tests) else ()
    needed = (*_test_requirements([package]), *servers, "pytest-xdist")
    _install(session, "--constraint", str(oldest), *needed)
    # What an old library uses, a new one that it needs may have deprecated since.
    _pytest(session, package.tests, "-W", "ignore::DeprecationWarning")


@nox.session(requires=["wheels"])
def coverage(session: nox.Session) -> None:
    """Measure which lines and branches the tests run, those of threads and processes included.

    On memory and SQLite; `-- --servers` adds the backends that `tests` would use. Names of
    distributions limit the run to their tests. The page of each file is in dist/coverage.
    """
    arguments = list(session.posargs)
    environment = {"HYPERCUBE_TEST_FROM": "url"}  # no address is given, so there is no server
    if "--servers" in arguments:
        arguments.remove("--servers")
        environment = {}
    packages = [PACKAGES[name] for name in arguments or PACKAGES]
    needed = (*_test_requirements(packages), *SERVERS, "pytest-xdist", COVERAGE)
    _install(session, *_everything(), *needed)
    rcfile = _coverage_settings(Path(session.create_tmp()).resolve(), packages)
    session.run("coverage", "erase", rcfile)
    # A failed test does not hide the figure, and still fails the session.
    failed = [
        package.name for package in packages if not _measure(session, package, rcfile, environment)
    ]
    session.run("coverage", "combine", "--quiet", rcfile)
    session.run("coverage", "html", "--quiet", rcfile)
    session.run("coverage", "report", rcfile)
    if failed:
        session.error(f"tests failed: {', '.join(failed)}; the figure is lower than it can be")


@nox.session
def lint(session: nox.Session) -> None:
    """Check style and format; fix both with `ruff check --fix` and `ruff format`."""
    _lint(session)


@nox.session(requires=["wheels"])
def types(session: nox.Session) -> None:
    """Check types strictly, of all but the tests: these pass wrong ones on purpose."""
    _types(session)


@nox.session(requires=["wheels"])
def docs(session: nox.Session) -> None:
    """Build the site into dist/site; a warning is a failure, and so is a broken link."""
    _docs(session)


@nox.session(requires=["wheels"])
def quickstart(session: nox.Session) -> None:
    """Check the links of Markdown files by jobs on SQLite: `-- FOLDER --db FILE`."""
    _install(session, *nox.project.load_toml(EXAMPLE)["dependencies"])
    session.run("python", str(EXAMPLE), *session.posargs)


@nox.session(requires=["wheels"])
def bench(session: nox.Session) -> None:
    """Measure drivers beside their raw limit: `-- memory sqlite`, `-- postgresql --peers`."""
    # Its compiled form, which is what peers are measured with.
    _install(session, *_everything(), *SERVERS, "psycopg[binary]")
    session.run("python", "-m", "tools.bench", *session.posargs)


@nox.session(requires=["wheels"])
@nox.parametrize("script", [nox.param(script, id=script.split("_")[0]) for script in FAILOVERS])
def failovers(session: nox.Session, script: str) -> None:
    """Measure what failovers cost, on real servers; `-- --write` writes it into the documents."""
    _install(session, *_everything(), *SERVERS)
    session.run("python", "-m", f"tools.{script}", *session.posargs)


@nox.session(requires=["wheels"])
def guarantees(session: nox.Session) -> None:
    """Write the table of guarantees where it is printed; `-- --check` only compares."""
    _install(session, *_everything())
    session.run("python", "tools/guarantees.py", *session.posargs)


def _test(session: nox.Session, part: str, *options: str, **environment: str) -> None:
    if part == "lint":
        _lint(session)
        return
    if part == "types":
        _types(session)
        return
    if part == "docs":
        _docs(session)
        return
    if part == "distributions":
        # Not one of them is installed here: the tests make environments of their own.
        _install(session, "pytest", "pytest-xdist", "uv", *BUILDERS)
        session.run("python", "-m", "pytest", *PARALLEL, "tools/distributions")
        return
    if part == "tools":
        packages, folder = list(PACKAGES.values()), Path("tools/tests")
        wheels = [*_everything(), *BUILDERS]
    else:
        packages, folder = [PACKAGES[part]], PACKAGES[part].tests
        wheels = [str(_wheel(session, PACKAGES[part]))]
    servers = SERVERS if _needs_servers(folder) else ()
    _install(session, *wheels, *_test_requirements(packages), *servers, "pytest-xdist")
    session.run("python", "tools/installed.py", *(package.import_name for package in packages))
    _pytest(session, folder, *options, **environment)


def _pytest(session: nox.Session, folder: Path, *options: str, **environment: str) -> None:
    command = ("python", "-m", "pytest", "-p", "tools.backends", *PARALLEL, *options)
    session.run(*command, str(folder), *session.posargs, env=environment)


def _coverage_settings(folder: Path, packages: Iterable[workspace.Package]) -> str:
    """Write what coverage measures and how; return the option that names the file."""
    names = [package.import_name for package in packages]
    # The tests import what was installed; the report names the files of the checkout.
    paths = "".join(
        f"{package.import_name} =\n  {package.source}\n  */site-packages/{package.import_name}\n"
        for package in packages
    )
    rcfile = folder / "coveragerc"
    rcfile.write_text(_COVERAGE_SETTINGS.format(folder, "\n  ".join(names), paths, DIST))
    return f"--rcfile={rcfile}"


def _measure(
    session: nox.Session, package: workspace.Package, rcfile: str, environment: dict[str, str]
) -> bool:
    """Run the tests of one distribution under coverage; return whether they passed."""
    pytest = ("-m", "pytest", "-p", "tools.backends", "-q", *PARALLEL, str(package.tests))
    try:
        session.run("coverage", "run", rcfile, *pytest, env=environment)
    except nox.command.CommandFailed:
        return False
    return True


def _needs_servers(tests: Path) -> bool:
    """Whether these tests ask for servers, as tools/backends/README.md says how."""
    conftest = ROOT / tests / "conftest.py"
    return conftest.exists() and "def pytest_hypercube_servers" in conftest.read_text()


def _lint(session: nox.Session) -> None:
    session.install(RUFF, *WORKFLOWS)
    session.run("ruff", "check", "--output-format", "concise")
    session.run("ruff", "format", "--check")
    schema = ("--builtin-schema", "vendor.github-workflows")
    workflows = sorted(map(str, Path(".github/workflows").glob("*.yml")))
    session.run("check-jsonschema", *schema, *workflows)
    session.run("zizmor", "--offline", "--quiet", ".github")


def _types(session: nox.Session) -> None:
    needed = (*_test_requirements(PACKAGES.values()), *SERVERS, *STUBS, *SITE, MYPY, "nox")
    _install(session, *_everything(), *needed)
    session.run("mypy", *(str(package.source) for package in PACKAGES.values()))
    session.run("mypy", "noxfile.py", "docs/conf.py", *map(str, Path("tools").glob("*.py")))
    session.run("mypy", "-p", "tools.backends", "-p", "tools.bench", "-p", "tools.strict_sqs")
    # One run each, because two of them may have modules of the same name.
    for folder in sorted(Path("packages").glob("*/examples")):
        session.run("mypy", str(folder))


def _docs(session: nox.Session) -> None:
    _install(session, *_everything(), *SITE, *nox.project.load_toml(EXAMPLE)["dependencies"])
    scratch = Path(session.create_tmp())
    strict = ("--jobs", "auto", "--quiet", "--fail-on-warning", "--keep-going", "--fresh-env")
    places = ("--conf-dir", "docs", "--doctree-dir", str(scratch), ".", str(DIST / "site"))
    session.run("sphinx-build", *strict, *places)
    session.run("python", str(EXAMPLE), "docs", "--db", str(scratch / "links.db"), "--strict")
    session.log(f"the site begins at {DIST / 'site/index.html'}")


def _install(session: nox.Session, *requirements: str) -> None:
    """Install, with the distributions of this workspace from its wheels or not at all."""
    # What the caller's shell adds to the path would hide an undeclared dependency.
    session.env["PYTHONPATH"] = ""
    session.install("--constraint", str(CONSTRAINTS), *requirements)


def _everything() -> list[str]:
    """Every distribution with all its extras."""
    return [
        f"{package.name}[{','.join(package.extras)}]" if package.extras else package.name
        for package in PACKAGES.values()
    ]


def _test_requirements(packages: Iterable[workspace.Package]) -> list[str]:
    return sorted({item for package in packages for item in package.groups.get("test", ())})


def _take_release(session: nox.Session, folder: Path) -> None:
    files = sorted(folder.iterdir())
    if not files:
        session.error(f"{folder}, which HYPERCUBE_TEST_RELEASE names, is empty")
    for file in files:
        if not (DIST / file.name).exists():
            session.error(f"{file} is none of the files that these sources give")
        shutil.copyfile(file, DIST / file.name)
        session.log(f"{file.name} is tested as it will be published")


def _wheel(session: nox.Session, package: workspace.Package) -> Path:
    wheel = DIST / package.wheel_name
    if not wheel.exists():
        session.error(f"{wheel} was not built; does the build give it another name?")
    return wheel
