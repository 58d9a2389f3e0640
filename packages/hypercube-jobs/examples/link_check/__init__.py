"""The parts of the link checker that know nothing about jobs."""

from __future__ import annotations

from link_check._folder import as_path, as_text, markdown_files, repository_root
from link_check._markdown import Document, Link
from link_check._report import Report, retry_command
from link_check._runs import Run, Runs
from link_check._targets import is_local, is_web_address, read_document, why_broken
from link_check._web import Unreachable, why_unwanted

__all__ = [
    "Document",
    "Link",
    "Report",
    "Run",
    "Runs",
    "Unreachable",
    "as_path",
    "as_text",
    "is_local",
    "is_web_address",
    "markdown_files",
    "read_document",
    "repository_root",
    "retry_command",
    "why_broken",
    "why_unwanted",
]
