"""Tune the training of a federation: learning rates, epochs and server optimisers of any Flower app.

`tune_federation` stands in the main function of a ServerApp and runs the app's own strategy with many
configurations; the ClientApp does not change. See `docs/tune-federation.md`.
"""

from __future__ import annotations

from fbo_flower.federated.legacy import LegacyClients
from fbo_flower.federated.records import TunedFederation
from fbo_flower.federated.replies import Bounds, Judge, client_metrics, is_number
from fbo_flower.federated.run_config import tuned_run_config
from fbo_flower.federated.schedules import Population, Search, cooled, exploit, perturbed
from fbo_flower.federated.step import Clients, Run
from fbo_flower.federated.tune import tune_federation
from fbo_flower.federated.tuner import TunerProgress
from fbo_flower.study.directory import Keep

__all__ = [
    "Bounds",
    "Clients",
    "Judge",
    "Keep",
    "LegacyClients",
    "Population",
    "Run",
    "Search",
    "TunedFederation",
    "TunerProgress",
    "client_metrics",
    "cooled",
    "exploit",
    "is_number",
    "perturbed",
    "tune_federation",
    "tuned_run_config",
]
