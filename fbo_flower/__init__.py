"""Federated black-box optimisation on Flower.

Agents tune hyperparameters together without sharing their data. An algorithm sends only the messages that
its paper describes; `docs/privacy.md` says what each message can reveal.

Names are imported when they are first used, so `import fbo_flower` takes milliseconds.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fbo_flower import algorithms, strategies
    from fbo_flower.clients import client_app
    from fbo_flower.federated import tune_federation
    from fbo_flower.simulation import simulate
    from fbo_flower.space import Categorical, Float, Int, Ordinal, SearchSpace
    from fbo_flower.study import Study

__version__ = "0.1.0"
_HOMES = {
    "Categorical": "space", "Float": "space", "Int": "space", "Ordinal": "space", "SearchSpace": "space",
    "Study": "study", "client_app": "clients", "simulate": "simulation", "tune_federation": "federated",
}  # fmt: skip
__all__ = [
    "Categorical",
    "Float",
    "Int",
    "Ordinal",
    "SearchSpace",
    "Study",
    "__version__",
    "algorithms",
    "client_app",
    "simulate",
    "strategies",
    "tune_federation",
]

if not TYPE_CHECKING:  # type checkers read the imports above and report misspelt names

    def __getattr__(name):
        """Import what is named on first use."""
        if name in ("algorithms", "strategies"):
            return import_module(f"fbo_flower.{name}")
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = globals()[name] = getattr(import_module(f"fbo_flower.{_HOMES[name]}"), name)
        return found

    def __dir__():
        return sorted({*globals(), *__all__})
