"""Releases: what each mismatch is called, and a release from the first step to the last."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import zipfile
from importlib.metadata import requires
from pathlib import Path

import pytest

import release
import workspace

_PYPROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "{name}"
dynamic = ["version"]
requires-python = ">=3.11"
dependencies = [{dependencies}]

[tool.hatch.version]
path = "src/{module}/__about__.py"
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A workspace of two distributions, of which `box-disk` needs `box`."""
    (tmp_path / "pyproject.toml").write_text(
        '[tool.hatch.envs.default]\nworkspace.members = ["packages/*"]\n'
    )
    for name, dependencies in (("box", ""), ("box-disk", '"box>=1.1,<2"')):
        module = name.replace("-", "_")
        source = tmp_path / "packages" / name / "src" / module
        source.mkdir(parents=True)
        (source / "__init__.py").touch()
        (source / "__about__.py").write_text('__version__ = "1.1.0"\n')
        (source.parent.parent / "pyproject.toml").write_text(
            _PYPROJECT.format(name=name, module=module, dependencies=dependencies)
        )
        (source.parent.parent / "CHANGELOG.md").write_text(
            "# Changelog\n\n## 1.1.0\n\nHolds more.\n\n## 1.0.0\n\nHolds things.\n"
        )
    return tmp_path


@pytest.mark.parametrize(
    ("tag", "released", "named"),
    [
        ("box-1.1.0", [], "is not <distribution>/v<major>.<minor>.<patch>"),
        ("box/v1.1", [], "is not <distribution>/v<major>.<minor>.<patch>"),
        ("crate/v1.1.0", [], "names no distribution of this repository: box, box-disk"),
        ("box/v1.2.0", [], "in which box is 1.1.0"),
        ("box-disk/v1.1.0", [], "needs box>=1.1,<2, and no such version is released yet"),
        ("box-disk/v1.1.0", ["box/v1.0.9"], "release box first"),
        ("box-disk/v1.1.0", ["box/v2.0.0"], "release box first"),
        ("box-disk/v1.1.0", ["box-disk/v1.1.0"], "release box first"),
    ],
)
def test_a_tag_that_does_not_fit_says_what_is_wrong(
    root: Path, tag: str, released: list[str], named: str
) -> None:
    with pytest.raises(release.Mismatch, match=named):
        release.check(tag, released, root)


def test_a_tag_that_fits_names_its_distribution(root: Path) -> None:
    assert release.check("box/v1.1.0", [], root).name == "box"
    assert release.check("box-disk/v1.1.0", ["box/v1.1.0"], root).name == "box-disk"
    assert release.check("box-disk/v1.1.0", ["box/v1.4.2"], root).name == "box-disk"


@pytest.mark.parametrize("said", ["", "## 1.1.0\n", "## 1.1.0\n\n## 1.0.0\n\nHolds things.\n"])
def test_a_release_that_says_nothing_is_refused(root: Path, said: str) -> None:
    (root / "packages/box/CHANGELOG.md").write_text(f"# Changelog\n\n{said}")

    with pytest.raises(release.Mismatch, match=r"packages/box/CHANGELOG.md has nothing under"):
        release.check("box/v1.1.0", [], root)


def test_a_changelog_that_is_ahead_of_the_source_is_refused(root: Path) -> None:
    """Else a release would leave out the number that its users were told."""
    changelog = root / "packages/box/CHANGELOG.md"
    ahead = changelog.read_text().replace("## 1.1.0", "## 1.2.0\n\nIs red.\n\n## 1.1.0")
    changelog.write_text(ahead)

    with pytest.raises(release.Mismatch, match=r"tells of 1\.2\.0, but the source says 1\.1\.0"):
        release.check("box/v1.1.0", [], root)

    changelog.write_text(ahead.replace("1.2.0", "Unreleased"))
    assert release.check("box/v1.1.0", [], root).name == "box"


@pytest.mark.parametrize(
    ("segment", "version"), [("major", "2.0.0"), ("minor", "1.2.0"), ("patch", "1.1.1")]
)
def test_a_bump_names_the_version_in_the_source_and_in_the_changelog(
    root: Path, segment: str, version: str
) -> None:
    """By hatch; afterwards the tag fits."""
    changelog = root / "packages/box/CHANGELOG.md"
    changelog.write_text("# Changelog\n\n## Unreleased\n\nLighter.\n\n## 1.1.0\n\nHolds more.\n")

    assert release.bump("box", segment, root) == version
    assert changelog.read_text().startswith(f"# Changelog\n\n## {version}\n\nLighter.\n")
    assert release.check(f"box/v{version}", [], root).version == version


def test_a_bump_without_a_word_of_what_changes_is_refused(root: Path) -> None:
    """And changes nothing."""
    with pytest.raises(release.Mismatch, match="has nothing under '## Unreleased'"):
        release.bump("box", "minor", root)
    assert workspace.load(root)["box"].version == "1.1.0"


def _built(folder: Path, name: str, version: str) -> None:
    """What a build of `box` 1.1.0 would leave, with this written into it."""
    metadata = f"Metadata-Version: 2.4\nName: {name}\nVersion: {version}\n"
    folder.mkdir(exist_ok=True)
    with zipfile.ZipFile(folder / "box-1.1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("box-1.1.0.dist-info/METADATA", metadata)
    (folder / "PKG-INFO").write_text(metadata)
    with tarfile.open(folder / "box-1.1.0.tar.gz", "w:gz") as archive:
        archive.add(folder / "PKG-INFO", "box-1.1.0/PKG-INFO")


def test_what_is_published_is_the_wheel_and_the_source_archive_of_the_tag(
    root: Path, tmp_path: Path
) -> None:
    _built(tmp_path / "dist", "box", "1.1.0")
    box = workspace.load(root)["box"]

    release.collect(box, tmp_path / "dist", tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "box-1.1.0-py3-none-any.whl",
        "box-1.1.0.tar.gz",
    ]
    with pytest.raises(release.Mismatch, match="it has to be empty"):
        release.collect(box, tmp_path / "dist", tmp_path / "out")


@pytest.mark.parametrize(("name", "version"), [("box", "1.0.0"), ("crate", "1.1.0")])
def test_files_of_another_version_are_not_published(
    root: Path, tmp_path: Path, name: str, version: str
) -> None:
    """Whatever the file is called."""
    _built(tmp_path / "dist", name, version)

    with pytest.raises(release.Mismatch, match=f"says it is {name} {version}, not box 1.1.0"):
        release.collect(workspace.load(root)["box"], tmp_path / "dist", tmp_path / "out")


def test_what_was_not_built_is_not_published(root: Path, tmp_path: Path) -> None:
    with pytest.raises(release.Mismatch, match="was not built"):
        release.collect(workspace.load(root)["box"], tmp_path / "dist", tmp_path / "out")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["check", "nothing"], "check: the tag 'nothing' is not"),
        (["bump", "crate", "minor"], "bump: crate is none of hypercube-queue"),
    ],
)
def test_the_command_fails_in_one_line(arguments: list[str], said: str) -> None:
    """So that a workflow stops, and its log says why."""
    done = subprocess.run(
        [sys.executable, "tools/release.py", *arguments],
        cwd=workspace.ROOT,
        check=False,
        capture_output=True,
        text=True,
    )

    assert done.returncode == 1
    assert done.stderr.startswith(said)
    assert done.stderr.count("\n") == 1


def test_a_build_leaves_what_is_published_and_downloads_nothing(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The environment has the tools, or the build fails: none that is not pinned is taken."""
    for setting in ("PIP_NO_INDEX", "UV_OFFLINE"):
        monkeypatch.setenv(setting, "1")
    (root / "packages/box/README.md").write_text("A box.\n")
    box = release.check("box/v1.1.0", [], root)
    files = release.build(box, tmp_path / "out", root)

    assert [file.name for file in files] == ["box-1.1.0-py3-none-any.whl", "box-1.1.0.tar.gz"]
    with zipfile.ZipFile(files[0]) as wheel:
        assert "box/__about__.py" in wheel.namelist()
    pyproject = root / "packages/box/pyproject.toml"
    pyproject.write_text(pyproject.read_text().replace('["hatchling"]', '["no-such-builder"]'))
    with pytest.raises(subprocess.CalledProcessError):
        release.build(box, tmp_path / "other", root)


def test_the_tools_of_a_release_are_pinned_with_their_hashes() -> None:
    """All that a build needs; the names of files, never of hosts."""
    lock = (workspace.ROOT / "tools/release.txt").read_text()
    entries = re.split(r"(?m)^(?=[a-z])", re.sub(r"(?m)^#.*\n", "", lock))[1:]
    pinned = set()
    for entry in entries:
        head, *hashes = entry.replace("\\\n", " ").split()
        assert re.fullmatch(r"[a-z-]+==[\d.]+", head)
        assert hashes, f"{head} has no hash"
        assert [
            each for each in hashes if not re.fullmatch("--hash=sha256:[0-9a-f]{64}", each)
        ] == []
        pinned.add(head.partition("==")[0])

    direct = {item for package in workspace.load().values() for item in package.build_requires}
    named = {workspace.requirement_name(item) for item in direct} | {"build"}
    indirect = [item for name in named for item in requires(name) or () if ";" not in item]
    assert named | {workspace.requirement_name(item) for item in indirect} <= pinned


def _jobs(workflow: str) -> dict[str, str]:
    """The text of each job, without comments."""
    text = (workspace.ROOT / ".github/workflows" / workflow).read_text()
    text = re.sub(r"(?m)(^| )#.*$", "", text).partition("\njobs:\n")[2]
    parts = re.split(r"(?m)^  ([a-z]+):$", text)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_a_release_is_built_where_nothing_else_runs() -> None:
    """Without root, without the right to publish, from pinned tools, before any test."""
    jobs = _jobs("release.yml")

    assert list(jobs) == ["build", "verify", "publish"]
    assert "sudo" not in jobs["build"]
    assert "nox" not in jobs["build"]
    assert "--require-hashes" in jobs["build"]
    assert "needs: build\n" in jobs["verify"]
    assert "HYPERCUBE_TEST_RELEASE=" in jobs["verify"]


def test_what_is_published_is_what_was_built_and_tested() -> None:
    """The only job that may publish waits for both, runs nothing of ours, compares the digests."""
    jobs = _jobs("release.yml")

    assert [name for name, job in jobs.items() if "id-token: write" in job] == ["publish"]
    assert "needs: [build, verify]\n" in jobs["publish"]
    assert "checkout" not in jobs["publish"]
    assert "needs.build.outputs.digests" in jobs["publish"]
    steps = jobs["publish"].split("- uses: ")
    assert "sha256sum" in steps[-2]
    assert "pypi-publish" in steps[-1]


def test_every_distribution_can_be_released_as_it_is() -> None:
    """In the order of their dependencies, each with the tags of those before it."""
    released: list[str] = []
    for package in workspace.load().values():
        tag = f"{package.name}/v{package.version}"
        assert release.check(tag, released).name == package.name
        released.append(tag)
