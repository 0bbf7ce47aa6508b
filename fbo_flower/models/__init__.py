"""Models on the wire: packed without pickle, read with suspicion, run in a process of their own."""

from fbo_flower.models.jail import Confinement
from fbo_flower.models.limits import Limits
from fbo_flower.models.packing import pack, unpack
from fbo_flower.models.rows import carries_rows
from fbo_flower.models.sandbox import confinement, predict
from fbo_flower.models.trusted import ESTIMATORS

__all__ = ["ESTIMATORS", "Confinement", "Limits", "carries_rows", "confinement", "pack", "predict", "unpack"]
