"""All experiments, by name: each runs as resumable jobs and writes tables and pictures."""

from __future__ import annotations

from importlib import import_module

from fbo_flower.errors import ConfigError
from studies.experiment import Experiment

HOMES = {  # name -> module, in which the experiment is EXPERIMENT
    "co-kg": "papers.co_kg",
    "families": "papers.families",
    "fed-ei": "papers.ei.experiment",
    "dp-fts": "papers.fts.private",
    "fts-landmine": "papers.fts.landmine",
    "fts-synthetic": "papers.fts.synthetic",
    "outputs": "papers.outputs",
    "pne": "papers.pne",
    "rfms": "papers.rfms.experiment",
    "robustness": "papers.robustness",
    "peers": "benchmarks.peers",
    "asynchrony": "benchmarks.asynchrony",
    "first-study": "benchmarks.first_study",
    "federation": "benchmarks.federation",
}
EXPERIMENTS: dict[str, Experiment] = {
    name: import_module(f"studies.{home}").EXPERIMENT for name, home in HOMES.items()
}


def find(name: str) -> Experiment:
    """Return the experiment with this name; ConfigError that lists all names if it is unknown."""
    if name not in EXPERIMENTS:
        raise ConfigError(f"experiment: expected one of {', '.join(EXPERIMENTS)}, got {name!r}")
    return EXPERIMENTS[name]


__all__ = ["EXPERIMENTS", "Experiment", "find"]
