"""Print a digest of `trials.csv` for every algorithm and its main options, with fixed seeds.

A change that must not change behaviour gives the same digests before and after::

    python -m studies.benchmarks.same_trials > before.txt   # at the old commit
    python -m studies.benchmarks.same_trials > after.txt    # at the new one
    diff before.txt after.txt

All runs together take about a minute on one core.
"""

from __future__ import annotations

import hashlib
import logging
import tempfile
from pathlib import Path

from fbo_flower.algorithms import make_algorithm
from fbo_flower.simulation import Keep, simulate

Run = tuple[
    str, str, int | None, int | None, dict[str, object]
]  # problem, algorithm, agents, rounds, options
RFMS = {"num_initial": 5, "num_trials": 10}

RUNS: dict[str, Run] = {
    "random": ("digits-svm", "random", 5, 6, {}),
    "ts": ("digits-svm", "ts", 5, 10, {}),
    "ei": ("digits-svm", "ei", 5, 10, {}),
    "fed-ei": ("digits-svm", "fed-ei", 5, 10, {}),
    "fed-ei in the clear": ("digits-svm", "fed-ei", 5, 10, {"secure_sums": 0}),
    "fed-ei standardise": ("digits-svm", "fed-ei", 5, 10, {"y_transform": "standardise"}),
    "fed-ei in threes": ("digits-svm", "fed-ei", 5, 5, {"trials_per_round": 3}),
    "fts": ("digits-svm", "fts", 5, 12, {}),
    "fts portfolio": ("digits-svm", "fts", 5, 12, {"advice": "portfolio"}),
    "fts mixture": ("digits-svm", "fts", 5, 10, {"advice": "mixture"}),
    "fts random": ("digits-svm", "fts", 5, 10, {"advice": "random"}),
    "fts federated": ("digits-svm", "fts", 5, 10, {"lengthscale": "federated"}),
    "fts secure": ("digits-svm", "fts", 5, 8, {"lengthscale": "federated", "secure_sums": 3}),
    "dp-fts": ("digits-svm", "dp-fts", 6, 8, {}),
    "dp-fts local": ("digits-svm", "dp-fts", 6, 8, {"noise": "local"}),
    "dp-fts secure": ("digits-svm", "dp-fts", 6, 6, {"secure_sums": 3}),
    "rgpe": ("digits-svm", "rgpe", 4, 7, {}),
    "taf": ("digits-svm", "taf", 4, 7, {}),
    "consensus": ("digits-svm", "consensus", 4, 8, {}),
    "fmtbo": ("digits-svm", "fmtbo", 4, 8, {}),
    "flora": ("digits-svm", "flora", 4, 8, {}),
    "dp-vote": ("digits-svm", "dp-vote", 4, None, {}),
    "pf-pne": ("garland", "pf-pne", 4, None, {"budget": 400}),
    "pf-pne deterministic": ("garland", "pf-pne", 4, None, {"budget": 400, "deterministic": True}),
    "pf-pne secure": ("garland", "pf-pne", 6, None, {"budget": 300, "secure_sums": 3}),
    "pf-pne median": ("garland", "pf-pne", 4, None, {"budget": 400, "aggregate": "median"}),
    "pf-pne racing": ("himmelblau", "pf-pne", 4, None, {"budget": 800, "variant": "racing"}),
    "pf-pne gp": ("garland", "pf-pne", 4, None, {"budget": 60, "variant": "gp"}),
    "fed-pne": ("garland", "fed-pne", 4, None, {"budget": 400}),
    "local-pne": ("garland", "local-pne", 4, None, {"budget": 400}),
    "hct": ("garland", "hct", 3, None, {"budget": 400}),
    "fed1-ucb": ("garland", "fed1-ucb", 4, None, {"budget": 400}),
    "fn-ucb": ("garland", "fn-ucb", 3, None, {"budget": 120}),
    "co-kg": ("f1", "co-kg", None, 12, {}),
    "co-kg auto": ("f1", "co-kg", None, 10, {"central": "auto", "refit": "doubling"}),
    "co-kg product": ("f1", "co-kg", None, 10, {"central": "product"}),
    "co-kg secure": ("f1", "co-kg", None, 6, {"secure_sums": 2}),
    "rfms fmo": ("breast-cancer-5sites", "rfms", None, None, {"method": "fmo", **RFMS}),
    "rfms ehvi": ("breast-cancer-5sites", "rfms", None, None, {"method": "ehvi", **RFMS}),
    "rfms rand_mo": ("breast-cancer-5sites", "rfms", None, None, {"method": "rand_mo", **RFMS}),
    "rfms lso": ("breast-cancer-5sites", "rfms", None, None, {"method": "lso", **RFMS}),
}


def digest(run: Run) -> str:
    """Return the SHA-256 of a run's `trials.csv`."""
    problem, algorithm, num_agents, num_rounds, options = run
    with tempfile.TemporaryDirectory() as directory:
        simulate(
            problem,
            agents=num_agents,
            algorithm=make_algorithm(algorithm, options),
            num_rounds=num_rounds,
            seed=3,
            engine="inline",
            keep=Keep(out=directory),
        )
        return hashlib.sha256((Path(directory) / "trials.csv").read_bytes()).hexdigest()


def main() -> None:
    """Print one line per run."""
    logging.getLogger("flwr").setLevel(logging.ERROR)
    for name, run in RUNS.items():
        print(f"{name:22s} {digest(run)}", flush=True)


if __name__ == "__main__":
    main()
