"""Federated black-box optimisation on Flower.

Agents tune hyperparameters together without sharing their data. An algorithm sends only the messages that
its paper describes; `docs/privacy.md` says what each message can reveal.
"""

from fbo_flower.space.parameters import Categorical, Float, Int, Ordinal
from fbo_flower.space.space import SearchSpace

__version__ = "0.1.0"
__all__ = ["Categorical", "Float", "Int", "Ordinal", "SearchSpace", "__version__"]
