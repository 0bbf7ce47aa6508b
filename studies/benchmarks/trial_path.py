"""What one steady trial runs: `python -m studies.benchmarks.trial_path random fts`."""

from __future__ import annotations

import sys

from studies.benchmarks.speed import trial_path

if __name__ == "__main__":
    trial_path(only=sys.argv[1:] or ["random", "fts"])
