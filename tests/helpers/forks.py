"""Forks of this process that need not import what an earlier one has imported.

A package imports much of scipy and scikit-learn where it first needs it. A test that starts hundreds of forks
would import it in every one of them, which takes longer than what they do.
"""

from __future__ import annotations

import importlib
import sys
from contextlib import suppress
from pathlib import Path


def note_modules(file: Path) -> None:
    """Write down which modules this process has imported; for the end of a fork."""
    file.write_text("\n".join(sys.modules))


def import_noted(file: Path) -> None:
    """Import what a fork has noted, so that later forks find it there; nothing else of that fork is left."""
    for name in file.read_text().split():
        with suppress(ImportError):  # names such as _cython_3_0, which no file has
            importlib.import_module(name)
