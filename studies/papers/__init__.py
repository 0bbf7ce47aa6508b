"""The papers' experiments, by name: each runs as resumable jobs and writes tables and pictures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fbo_flower.errors import ConfigError
from studies.jobs import Directory, OnJob
from studies.papers import families, outputs, robustness, warm_start
from studies.papers.co_kg import experiment as co_kg
from studies.papers.ei import experiment as ei
from studies.papers.fts import landmine, messages, private, related, synthetic
from studies.papers.pne import budgets
from studies.papers.pne import experiment as pne
from studies.papers.rfms import experiment as rfms

Runner = Callable[[Directory, bool, int, OnJob], list[Path]]


@dataclass(frozen=True)
class Experiment:
    """An experiment that can be started by name.

    Parameters
    ----------
    summary : one line for listings
    quick : how long `--quick` takes on two cores, in words
    run : `run(directory, quick, num_workers, on_job)` returns the files it wrote; `on_job` is called with
        the name of the stage, the number of its finished jobs and the number of all its jobs
    """

    summary: str
    quick: str
    run: Runner


EXPERIMENTS: dict[str, Experiment] = {
    "co-kg": Experiment(
        "Co-KG and its comparators on two functions and two networks", "30 seconds", co_kg.run
    ),
    "dp-fts": Experiment(
        "Differential privacy on landmine: gain at several noise levels", "10 seconds", private.run
    ),
    "families": Experiment(
        "All algorithms on the same problems with the same budget", "10 seconds", families.run
    ),
    "fed-ei": Experiment(
        "Federated expected improvement against the best local optimiser, late joiners", "20 seconds", ei.run
    ),
    "fts-landmine": Experiment(
        "FTS on 29 landmine fields, each in turn the target", "40 seconds", landmine.run
    ),
    "fts-messages": Experiment(
        "FTS, RGPE and TAF on landmine: message size, time and growing observations",
        "30 seconds",
        messages.run,
    ),
    "fts-related": Experiment(
        "FTS when half of the agents are unrelated, and what P_N learns", "40 seconds", related.run
    ),
    "fts-synthetic": Experiment(
        "FTS on functions drawn from a Gaussian process", "40 seconds", synthetic.run
    ),
    "outputs": Experiment(
        "Several objectives and limits: fed-ei, copying, and the best local optimisers",
        "10 seconds",
        outputs.run,
    ),
    "pne": Experiment(
        "PF-PNE, its racing variant and six comparators: cumulative regret", "50 seconds", pne.run
    ),
    "pne-budgets": Experiment(
        "Bandits with 50 to 5000 pulls beside GP-UCB, random search and halving", "20 seconds", budgets.run
    ),
    "rfms": Experiment(
        "RFMS: all methods on tabulated sites, their volumes and shipped models", "20 seconds", rfms.run
    ),
    "robustness": Experiment(
        "Honest agents among liars: FTS, Co-KG and PF-PNE compared with tuning alone",
        "4 minutes",
        robustness.run,
    ),
    "warm-start": Experiment(
        "Landmine fields that start from the messages of other fields", "10 seconds", warm_start.run
    ),
}


def find(name: str) -> Experiment:
    """Return the experiment with this name; ConfigError that lists all names if it is unknown."""
    if name not in EXPERIMENTS:
        raise ConfigError(f"experiment: expected one of {', '.join(EXPERIMENTS)}, got {name!r}")
    return EXPERIMENTS[name]


__all__ = ["EXPERIMENTS", "Experiment", "find"]
