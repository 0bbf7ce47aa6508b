"""Everything that needs no device: problems, engines, pictures, and `simulate` that runs them."""

from fbo_flower.simulation.problems import PROBLEMS, Problem, make_problem
from fbo_flower.simulation.runner import ENGINES, simulate

__all__ = ["ENGINES", "PROBLEMS", "Problem", "make_problem", "simulate"]
