"""Releasing one distribution: a new version, the checks of its tag, the files to publish.

    python tools/release.py bump hypercube-queue-redis minor
    python tools/release.py check hypercube-queue-redis/v1.1.0
    python tools/release.py build hypercube-queue-redis/v1.1.0 release

`bump` lets hatchling, which has to be installed, write the next version, and gives the
changelog's section "Unreleased" its name. Once that is committed, the tag
`<distribution>/v<version>` makes the release: the workflow installs what release.txt pins, and
`build` runs `check` and puts wheel and source archive into the folder. These very files are
tested by another job, and then published.
"""

from __future__ import annotations

import argparse
import email
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from workspace import ROOT, Package, load, requirement_name

_TAG = re.compile(r"(?P<name>[a-z0-9-]+)/v(?P<version>\d+\.\d+\.\d+)")
_UNRELEASED = "Unreleased"
SEGMENTS = ("major", "minor", "patch")


class Mismatch(Exception):
    """Something that has to be put right before the release; the text says what."""


def bump(name: str, segment: str, root: Path = ROOT) -> str:
    """Give a distribution its next version; returns that."""
    packages = load(root)
    if name not in packages:
        raise Mismatch(f"{name} is none of {', '.join(packages)}")
    package = packages[name]
    changelog = root / package.folder / "CHANGELOG.md"
    if not section(changelog.read_text(), _UNRELEASED):
        raise Mismatch(
            f"{changelog.relative_to(root)} has nothing under '## {_UNRELEASED}'; tell those who "
            "upgrade what changes"
        )
    # By hatch's build backend, which needs no environment of its own for this.
    command = [sys.executable, "-m", "hatchling", "version", segment]
    subprocess.run(command, cwd=root / package.folder, check=True)
    version = load(root)[name].version
    text = changelog.read_text()
    changelog.write_text(text.replace(f"## {_UNRELEASED}", f"## {version}", 1))
    return version


def check(tag: str, released: Sequence[str], root: Path = ROOT) -> Package:
    """The distribution that a tag releases; raises Mismatch unless everything fits.

    `released` are the tags that there are.
    """
    packages = load(root)
    package = _named(tag, packages)
    changelog = root / package.folder / "CHANGELOG.md"
    if not section(changelog.read_text(), package.version):
        raise Mismatch(
            f"{changelog.relative_to(root)} has nothing under '## {package.version}'; "
            "`python tools/release.py bump` writes that heading"
        )
    headings = re.findall(r"(?m)^## (.+?)\s*$", changelog.read_text())
    newest = next(each for each in headings if each != _UNRELEASED)
    if newest != package.version:
        raise Mismatch(
            f"{changelog.relative_to(root)} tells of {newest}, but the source says "
            f"{package.version}; what is not released yet stands under '## {_UNRELEASED}'"
        )
    wanted = [*package.dependencies, *(i for items in package.extras.values() for i in items)]
    for requirement in wanted:
        needed = packages.get(requirement_name(requirement))
        if needed is not None and not _is_met(requirement, needed.name, released):
            raise Mismatch(
                f"{package.name} needs {requirement}, and no such version is released yet; "
                f"release {needed.name} first"
            )
    return package


def build(package: Package, into: Path, root: Path = ROOT) -> list[Path]:
    """Build the source archive of a distribution, from that its wheel, and `collect` both.

    By the tools of this environment: none are downloaded.
    """
    with tempfile.TemporaryDirectory() as built:
        command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", built]
        subprocess.run([*command, str(root / package.folder)], check=True)
        return collect(package, Path(built), into)


def collect(package: Package, built: Path, into: Path) -> list[Path]:
    """Copy the wheel and the source archive of a distribution, if they are of its version."""
    wheel = built / package.wheel_name
    archive = built / f"{package.import_name}-{package.version}.tar.gz"
    for file in (wheel, archive):
        if not file.exists():
            raise Mismatch(f"{file.name} was not built; does the build give it another name?")
        name, version = _metadata(file)
        if (requirement_name(name), version) != (package.name, package.version):
            raise Mismatch(
                f"{file} says it is {name} {version}, not {package.name} {package.version}"
            )
    into.mkdir(parents=True, exist_ok=True)
    if others := [path.name for path in into.iterdir()]:
        raise Mismatch(f"{into} already has {', '.join(sorted(others))}; it has to be empty")
    return [Path(shutil.copy(file, into)) for file in (wheel, archive)]


def section(changelog: str, heading: str) -> str:
    """What a changelog says under a heading of the second level, without that heading."""
    match = re.search(rf"(?ms)^## {re.escape(heading)}\s*$(.*?)(?=^## |\Z)", changelog)
    return match[1].strip() if match else ""


def tags(root: Path = ROOT) -> list[str]:
    """The tags that git knows."""
    command = ["git", "tag", "--list"]
    listing = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True)
    return listing.stdout.split()


def _named(tag: str, packages: Mapping[str, Package]) -> Package:
    match = _TAG.fullmatch(tag)
    if match is None:
        raise Mismatch(f"the tag {tag!r} is not <distribution>/v<major>.<minor>.<patch>")
    package = packages.get(match["name"])
    if package is None:
        raise Mismatch(
            f"the tag {tag!r} names no distribution of this repository: {', '.join(packages)}"
        )
    if package.version != match["version"]:
        raise Mismatch(
            f"the tag {tag!r} is on a commit in which {package.name} is {package.version}"
        )
    return package


def _is_met(requirement: str, name: str, released: Sequence[str]) -> bool:
    """Whether a released version is within `>=1.N,<2`, the form of all requirements here."""
    match = re.search(r">=(\d+)\.(\d+),<(\d+)$", requirement)
    if match is None:
        raise Mismatch(f"the requirement {requirement} is not of the form name>=1.N,<2")
    lowest, highest = (int(match[1]), int(match[2])), (int(match[3]), 0)
    versions = (tag.removeprefix(f"{name}/v") for tag in released if tag.startswith(f"{name}/v"))
    return any(lowest <= _minor(version) < highest for version in versions)


def _minor(version: str) -> tuple[int, int]:
    major, minor, _ = version.split(".")
    return int(major), int(minor)


def _metadata(file: Path) -> tuple[str, str]:
    """The name and the version that are written into a wheel or a source archive."""
    if file.suffix == ".whl":
        with zipfile.ZipFile(file) as wheel:
            [inner] = [each for each in wheel.namelist() if each.endswith(".dist-info/METADATA")]
            text = wheel.read(inner)
    else:
        with tarfile.open(file) as archive:
            member = archive.extractfile(f"{file.name.removesuffix('.tar.gz')}/PKG-INFO")
            if member is None:
                raise Mismatch(f"{file} has no PKG-INFO")
            text = member.read()
    headers = email.message_from_bytes(text)
    return str(headers["Name"]), str(headers["Version"])


def main() -> None:
    parser = argparse.ArgumentParser(description="Releasing one distribution.")
    commands = parser.add_subparsers(dest="command", required=True)
    bumping = commands.add_parser("bump", help="give a distribution its next version")
    bumping.add_argument("name")
    bumping.add_argument("segment", choices=SEGMENTS)
    checking = commands.add_parser("check", help="fail unless a tag can be released")
    checking.add_argument("tag", help="<distribution>/v<version>")
    building = commands.add_parser("build", help="check, and build what is to be published")
    building.add_argument("tag", help="<distribution>/v<version>")
    building.add_argument("folder", type=Path, help="an empty or missing folder")
    arguments = parser.parse_args()
    try:
        if arguments.command == "bump":
            version = bump(arguments.name, arguments.segment)
            print(f"commit this, then: git tag {arguments.name}/v{version}")
            return
        package = check(arguments.tag, tags())
        if arguments.command == "build":
            for file in build(package, arguments.folder):
                print(file)
        else:
            print(f"{package.name} {package.version} can be released")
    except Mismatch as problem:
        sys.exit(f"{arguments.command}: {problem}")


if __name__ == "__main__":
    main()
