"""Fails unless the named packages come from the running environment, as wheels do.

python tools/installed.py hypercube_queue
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

environment = Path(sys.prefix).resolve()
for name in sys.argv[1:]:
    found = importlib.util.find_spec(name)
    if found is None or found.origin is None:
        sys.exit(f"{name} is not installed in {environment}")
    if not Path(found.origin).resolve().is_relative_to(environment):
        sys.exit(f"{name} comes from {found.origin}, which is not in {environment}")
