"""The results of a run: tables of trials, rounds and regret, and the files that store them."""

from fbo_flower.study.directory import study_directory
from fbo_flower.study.ranking import incumbents
from fbo_flower.study.study import Study
from fbo_flower.study.table import Table

__all__ = ["Study", "Table", "incumbents", "study_directory"]
