"""`python -m hypercube_jobs._command`, which finds the same interpreter and packages."""

from __future__ import annotations

from hypercube_jobs._command import main

main()
