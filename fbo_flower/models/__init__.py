"""Send fitted models without pickle, check received ones, and let them predict in a sandboxed process."""

from fbo_flower.models.limits import Limits
from fbo_flower.models.packing import pack, unpack
from fbo_flower.models.rows import carries_rows
from fbo_flower.models.sandbox import predict
from fbo_flower.models.trusted import ESTIMATORS

__all__ = ["ESTIMATORS", "Limits", "carries_rows", "pack", "predict", "unpack"]
