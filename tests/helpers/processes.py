"""Processes that tests start."""

import os
import subprocess
import sys
from pathlib import Path

from waiting import LIMIT

ROOT = Path(__file__).parents[2]


def python(*words, cwd=ROOT, paths=(), fails=False, seconds=LIMIT, **environment):
    """Run Python with this checkout on its path and return what it did; it has to succeed, unless `fails`.

    Parameters
    ----------
    paths : directories before this checkout on Python's path
    environment : further variables
    """
    path = os.pathsep.join(map(str, (*paths, ROOT)))
    done = subprocess.run(
        [sys.executable, *map(str, words)], cwd=cwd, env={**os.environ, "PYTHONPATH": path, **environment},
        capture_output=True, text=True, timeout=seconds, check=False,
    )  # fmt: skip
    assert fails or done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done
