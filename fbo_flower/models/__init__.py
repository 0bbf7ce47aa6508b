"""Send fitted models without pickle, check received ones, and let them predict in a sandboxed process."""

from fbo_flower.models.archive import Limits
from fbo_flower.models.formats import FORMATS, as_file, pack_exported
from fbo_flower.models.jail import Confinement
from fbo_flower.models.packing import pack, unpack
from fbo_flower.models.rows import carries_rows, carries_rows_in_bytes
from fbo_flower.models.sandbox import confinement, predict
from fbo_flower.models.schema import ESTIMATORS, check_trust

__all__ = [
    "ESTIMATORS",
    "FORMATS",
    "Confinement",
    "Limits",
    "as_file",
    "carries_rows",
    "carries_rows_in_bytes",
    "check_trust",
    "confinement",
    "pack",
    "pack_exported",
    "predict",
    "unpack",
]
