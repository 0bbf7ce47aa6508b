"""Federated black-box optimisation on Flower.

Agents tune hyperparameters together without sharing their data. An algorithm sends only the messages that
its paper describes; `docs/privacy.md` says what each message can reveal.

Names are imported when they are first used, so `import fbo_flower` takes milliseconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fbo_flower.lazy import lazily
from fbo_flower.version import __version__

if TYPE_CHECKING:
    from fbo_flower import algorithms, strategies
    from fbo_flower.clients import Asked, Optimizer, Site, client_app
    from fbo_flower.clients.ei_sampler import EISampler
    from fbo_flower.clients.optuna_sampler import FederatedSampler
    from fbo_flower.federated import tune_federation
    from fbo_flower.simulation import simulate
    from fbo_flower.space import Categorical, Float, Int, Ordinal, SearchSpace
    from fbo_flower.study import Study

_HOMES = {
    "Categorical": "space", "Float": "space", "Int": "space", "Ordinal": "space", "SearchSpace": "space",
    "Asked": "clients", "Optimizer": "clients", "Site": "clients", "client_app": "clients",
    "EISampler": "clients.ei_sampler", "FederatedSampler": "clients.optuna_sampler", "Study": "study",
    "simulate": "simulation", "tune_federation": "federated", "algorithms": "", "strategies": "",
}  # fmt: skip
__all__ = [
    "Asked",
    "Categorical",
    "EISampler",
    "FederatedSampler",
    "Float",
    "Int",
    "Optimizer",
    "Ordinal",
    "SearchSpace",
    "Site",
    "Study",
    "__version__",
    "algorithms",
    "client_app",
    "simulate",
    "strategies",
    "tune_federation",
]

if not TYPE_CHECKING:  # type checkers read the imports above and report misspelt names
    __getattr__, __dir__ = lazily(__name__, _HOMES)
