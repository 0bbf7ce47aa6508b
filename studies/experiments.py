"""All experiments, by name: each runs as resumable jobs and writes tables and pictures."""

from __future__ import annotations

from fbo_flower.errors import ConfigError
from studies.attacks import fed_ei_liars
from studies.benchmarks import (
    asynchrony,
    exchanges,
    federation,
    first_study,
    fts_options,
    noisy_functions,
    peers,
    plateau,
    pruning,
    several_at_once,
    shared_prior,
    unequal_agents,
)
from studies.experiment import Experiment
from studies.papers import families, outputs, robustness, warm_start
from studies.papers.co_kg import experiment as co_kg
from studies.papers.ei import experiment as ei
from studies.papers.fts import landmine, messages, private, related, synthetic
from studies.papers.pne import budgets
from studies.papers.pne import experiment as pne
from studies.papers.rfms import experiment as rfms

EXPERIMENTS: dict[str, Experiment] = {
    "co-kg": co_kg.EXPERIMENT,
    "families": families.EXPERIMENT,
    "fed-ei": ei.EXPERIMENT,
    "dp-fts": private.EXPERIMENT,
    "fts-landmine": landmine.EXPERIMENT,
    "fts-messages": messages.EXPERIMENT,
    "fts-related": related.EXPERIMENT,
    "fts-synthetic": synthetic.EXPERIMENT,
    "outputs": outputs.EXPERIMENT,
    "pne": pne.EXPERIMENT,
    "pne-budgets": budgets.EXPERIMENT,
    "rfms": rfms.EXPERIMENT,
    "robustness": robustness.EXPERIMENT,
    "warm-start": warm_start.EXPERIMENT,
    "peers": peers.EXPERIMENT,
    "exchanges": exchanges.EXPERIMENT,
    "several-at-once": several_at_once.EXPERIMENT,
    "unequal-agents": unequal_agents.EXPERIMENT,
    "co-kg-asynchrony": asynchrony.EXPERIMENT,
    "first-study": first_study.EXPERIMENT,
    "fed-ei-liars": fed_ei_liars.EXPERIMENT,
    "federation": federation.EXPERIMENT,
    "fts-options": fts_options.EXPERIMENT,
    "noisy-functions": noisy_functions.EXPERIMENT,
    "plateaus": plateau.EXPERIMENT,
    "pruning": pruning.EXPERIMENT,
    "shared-prior": shared_prior.EXPERIMENT,
}


def find(name: str) -> Experiment:
    """Return the experiment with this name; ConfigError that lists all names if it is unknown."""
    if name not in EXPERIMENTS:
        raise ConfigError(f"experiment: expected one of {', '.join(EXPERIMENTS)}, got {name!r}")
    return EXPERIMENTS[name]


__all__ = ["EXPERIMENTS", "Experiment", "find"]
