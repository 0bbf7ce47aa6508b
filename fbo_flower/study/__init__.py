"""What a run leaves behind: tables of trials, rounds and results, and the files that hold them."""

from fbo_flower.study.study import Study
from fbo_flower.study.table import Table

__all__ = ["Study", "Table"]
