"""Simulated federations on one machine: problems, engines, and `simulate`, which runs on them."""

from fbo_flower.simulation.agents import problem_app
from fbo_flower.simulation.annotate import annotate
from fbo_flower.simulation.durations import Duration, log_normal, slower
from fbo_flower.simulation.engines import ENGINES
from fbo_flower.simulation.grids import FIRST_NODE, Fault, InProcessGrid
from fbo_flower.simulation.partitioners import by_group, train_validation
from fbo_flower.simulation.problems import PROBLEMS, Problem, make_problem
from fbo_flower.simulation.runner import observations, prior_study, simulate
from fbo_flower.simulation.settings import Checkpoint, PriorKnowledge, RayEngine

__all__ = [
    "ENGINES",
    "FIRST_NODE",
    "PROBLEMS",
    "Checkpoint",
    "Duration",
    "Fault",
    "InProcessGrid",
    "PriorKnowledge",
    "Problem",
    "RayEngine",
    "annotate",
    "by_group",
    "log_normal",
    "make_problem",
    "observations",
    "prior_study",
    "problem_app",
    "simulate",
    "slower",
    "train_validation",
]
