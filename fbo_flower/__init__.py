"""Federated black-box optimisation on Flower.

Agents that hold data they cannot share tune hyperparameters together; what the chosen algorithm's
paper lets travel, travels, everything else stays.
"""

from fbo_flower.space.parameters import Categorical, Float, Int, Ordinal
from fbo_flower.space.space import SearchSpace

__version__ = "0.1.0"
__all__ = ["Categorical", "Float", "Int", "Ordinal", "SearchSpace", "__version__"]
