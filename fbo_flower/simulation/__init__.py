"""Simulated federations on one machine: problems, engines, and `simulate`, which runs on them."""

from fbo_flower.simulation.engines import ENGINES
from fbo_flower.simulation.problems import PROBLEMS, Problem, make_problem
from fbo_flower.simulation.runner import simulate
from fbo_flower.simulation.settings import Checkpoint, PriorKnowledge, RayEngine

__all__ = [
    "ENGINES",
    "PROBLEMS",
    "Checkpoint",
    "PriorKnowledge",
    "Problem",
    "RayEngine",
    "make_problem",
    "simulate",
]
