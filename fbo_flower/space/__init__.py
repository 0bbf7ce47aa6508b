"""The search space: what may be tuned, as named parameters and as points of the unit cube."""

from fbo_flower.space.parameters import Categorical, Float, Int, Ordinal, Parameter
from fbo_flower.space.space import SearchSpace

__all__ = ["Categorical", "Float", "Int", "Ordinal", "Parameter", "SearchSpace"]
