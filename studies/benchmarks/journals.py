"""What an agent's journal costs: a commit, opening it again, and opening it for the first time.

Run `python -m studies.benchmarks.journals`; it prints one line per size, in milliseconds (the smallest of
several times). "First" is the first time that a process opens a file, which includes SQLite's check of all
pages.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from fbo_flower.storage import AgentJournal
from fbo_flower.storage.agent_journal import Evaluation

SIZES = (100, 10_000, 500_000)
FIRST = """
import sys, time
from fbo_flower.storage import AgentJournal
import sqlite3
started = time.perf_counter()
AgentJournal(sys.argv[1], "0").close()
print((time.perf_counter() - started) * 1000)
"""


def fill(path: Path, num_rows: int) -> None:
    """Write evaluations of tasks with 100 trials each."""
    with AgentJournal(path, "0") as journal:
        journal.begin("study", 7, bytes(1000))
        for trial in range(num_rows):
            journal.append("study", f"{trial // 100:064x}", Evaluation(trial, np.full(4, 1 / 3), 0.1 + trial))
            if trial % 10_000 == 9_999:
                journal.commit()


def smallest(work: Callable[[], object], times: int) -> float:
    """Return the shortest duration in milliseconds."""
    found = []
    for _ in range(times):
        started = time.perf_counter()
        work()
        found.append((time.perf_counter() - started) * 1000)
    return min(found)


def main() -> None:
    """Print the durations for journals of several sizes."""
    print("rows MB first again one-evaluation batch-of-1000 read-a-task")
    for num_rows in SIZES:
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / "a.db"
            fill(path, num_rows)
            times = []
            for _ in range(3):
                ran = subprocess.run(
                    [sys.executable, "-c", FIRST, str(path)], capture_output=True, text=True, check=True
                )
                times.append(float(ran.stdout))
            size, first = path.stat().st_size / 1e6, min(times)
            again = smallest(lambda path=path: AgentJournal(path, "0").close(), 20)  # type: ignore[misc]
            with AgentJournal(path, "0", clock=lambda: 0.0) as journal:

                def batch(count: int, journal: AgentJournal = journal) -> None:
                    for trial in range(count):
                        journal.append("batch", "task", Evaluation(trial, np.full(4, 1 / 3), 0.1))
                    journal.commit()

                one, thousand = smallest(lambda: batch(1), 50), smallest(lambda: batch(1000), 5)
                read = smallest(lambda: journal.evaluations("study", f"{0:064x}"), 20)
            print(f"{num_rows} {size:.1f} {first:.2f} {again:.2f} {one:.2f} {thousand:.1f} {read:.2f}")


if __name__ == "__main__":
    main()
