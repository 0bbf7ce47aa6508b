"""How much a test repeats: `make test` repeats it in full, `make quick` a part of that."""

import pytest

THOROUGH = False  # set by conftest.py before any test is imported
slow = pytest.mark.slow


def examples(number, fewer=None):
    """Return `number` if the slow tests run too, else `fewer`, or a quarter."""
    return number if THOROUGH else max(1, number // 4) if fewer is None else fewer
