"""The site, as Sphinx reads it. `nox -s docs` builds it into dist/site.

The whole repository is the source folder: a link from a page to a README, or back, is the same
path on the site as in the repository.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))

import reference  # noqa: E402  # tools/ is on the path only now
import workspace  # noqa: E402

_REFERENCE = reference.Reference(workspace.load().values(), ROOT)
_REFERENCE.write(ROOT / "docs/reference")

project = "Hypercube"
html_title = "Hypercube"
html_theme = "furo"
html_extra_path = ["start"]
html_copy_source = False
html_show_copyright = False

extensions = ["myst_parser", "sphinx.ext.autodoc"]
root_doc = "docs/index"
include_patterns = [
    "README.md",
    "SECURITY.md",
    "docs/**.md",
    "docs/decisions/*.md",
    "packages/*/*.md",
    "packages/*/examples/*.md",
    "conformance/*.md",
    "tools/backends/README.md",
]
# Folders that are not even looked through.
exclude_patterns = [".*", "dist", "**/src", "**/tests"]
# GitHub makes anchors of headings in the same way.
myst_heading_anchors = 4

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
# A name between backquotes is code, and a link where the reference has it.
default_role = "py:obj"


def setup(app: Any) -> None:
    """Called by Sphinx."""
    reference.connect(app, _REFERENCE)
