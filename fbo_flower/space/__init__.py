"""Search spaces: named parameters to tune, and their mapping to points of the unit cube."""

from fbo_flower.space.parameters import Categorical, Float, Int, Ordinal, Parameter
from fbo_flower.space.space import Config, SearchSpace

__all__ = ["Categorical", "Config", "Float", "Int", "Ordinal", "Parameter", "SearchSpace"]
