"""Tune the training of a federation: learning rates, epochs and server optimisers of any Flower app.

`tune_federation` stands in the main function of a ServerApp and runs the app's own strategy with many
configurations; the ClientApp does not change. See `docs/tune-federation.md`.
"""

from __future__ import annotations

from fbo_flower.federated.fedex import FedEx
from fbo_flower.federated.fedpop import FedPop
from fbo_flower.federated.legacy import LegacyClients
from fbo_flower.federated.personal import Personal
from fbo_flower.federated.population import Population
from fbo_flower.federated.result import TunedFederation
from fbo_flower.federated.tune import tune_federation
from fbo_flower.federated.tuner import TunerProgress

__all__ = [
    "FedEx",
    "FedPop",
    "LegacyClients",
    "Personal",
    "Population",
    "TunedFederation",
    "TunerProgress",
    "tune_federation",
]
