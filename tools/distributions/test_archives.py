"""What is published: the source archive builds the wheel that is published beside it."""

from __future__ import annotations

import tarfile
import zipfile
from pathlib import Path

import pytest

import workspace

PACKAGES = workspace.load()
DIST = workspace.ROOT / "dist"


def _contents(file: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(file) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.mark.parametrize("package", PACKAGES.values(), ids=list(PACKAGES))
def test_the_source_archive_and_the_checkout_build_the_same_wheel(
    wheel, tmp_path: Path, package: workspace.Package
) -> None:
    """File by file, the metadata among them."""
    with tarfile.open(DIST / f"{package.import_name}-{package.version}.tar.gz") as archive:
        archive.extractall(tmp_path / "source", filter="data")
    [unpacked] = (tmp_path / "source").iterdir()
    wheel(unpacked, tmp_path / "of-archive")
    wheel(workspace.ROOT / package.folder, tmp_path / "of-checkout")

    of_archive = _contents(tmp_path / "of-archive" / package.wheel_name)
    assert of_archive == _contents(tmp_path / "of-checkout" / package.wheel_name)
    assert of_archive == _contents(DIST / package.wheel_name)
