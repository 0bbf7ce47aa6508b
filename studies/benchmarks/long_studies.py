"""Memory and time of long studies: what grows with the rounds?

Run `python -m studies.benchmarks.long_studies ALGORITHM ROUNDS` with OPENBLAS_NUM_THREADS=1. It prints about
twelve lines: the round, CPU seconds per round since the line before, resident memory in MB (Linux), and the
number of evaluations so far; then the digest of `trials.csv`. 200 agents, engine inline. The problem is
`garland`; for `pf-pne`, which ends after 9 rounds, a plain function that is called for every pull.
"""

from __future__ import annotations

import hashlib
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from fbo_flower import Float, SearchSpace
from fbo_flower.simulation import Keep, simulate
from fbo_flower.strategies import RoundProgress

AGENTS = 200


def hill(config: dict[str, Any], agent: int) -> float:
    """Return the height of the agent's own hill."""
    return float(-((config["x"] - agent / AGENTS) ** 2) - (config["y"] - 0.3) ** 2)


def resident() -> float:
    """Return the resident memory of this process in MB."""
    return int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[1]) * 4096 / 1e6


def main() -> None:
    """Print the lines of one study."""
    algorithm, num_rounds = sys.argv[1], int(sys.argv[2])
    every, begun, evaluations = max(1, num_rounds // 12), time.process_time(), 0
    problem: dict[str, Any] = {"objective": "garland", "agents": AGENTS}
    if algorithm == "pf-pne":
        space = SearchSpace({"x": Float(0.0, 1.0), "y": Float(0.0, 1.0)})
        problem = {"objective": hill, "space": space, "agents": list(range(AGENTS))}

    def on_round(progress: RoundProgress) -> None:
        nonlocal begun, evaluations
        evaluations += progress.evaluations
        if progress.server_round % every == 0:
            now = time.process_time()
            seconds = (now - begun) / every
            print(f"{progress.server_round} {seconds:.3f} {resident():.1f} {evaluations}", flush=True)
            begun = now

    print("round seconds MB evaluations", flush=True)
    with tempfile.TemporaryDirectory() as out:
        simulate(
            algorithm=algorithm, num_rounds=num_rounds, engine="inline", keep=Keep(out=out),
            callbacks=[on_round], **problem,
        )  # fmt: skip
        print(hashlib.sha256(Path(out, "trials.csv").read_bytes()).hexdigest()[:16])


if __name__ == "__main__":
    main()
