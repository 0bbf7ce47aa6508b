"""The problems of the papers, by name: `import studies` adds them to those of the package."""

from fbo_flower.simulation import PROBLEMS, Problem
from studies.problems.california_trees import CaliforniaTrees
from studies.problems.landmine_svm import LandmineSVM
from studies.problems.mlp import BreastCancerMLP, CaliforniaMLP
from studies.problems.sites import FriSites, GravierSites, Heart, MadelonSites, SemeionSites
from studies.problems.synthetic import Ackley, Rastrigin10D, Rosenbrock

OF_PAPERS: tuple[type[Problem], ...] = (
    LandmineSVM, Ackley, Rastrigin10D, Rosenbrock, BreastCancerMLP, CaliforniaMLP, CaliforniaTrees,
    Heart, MadelonSites, FriSites, SemeionSites, GravierSites,
)  # fmt: skip
PROBLEMS.update({problem.name: problem for problem in OF_PAPERS})

__all__ = [
    "OF_PAPERS", "Ackley", "BreastCancerMLP", "CaliforniaMLP", "CaliforniaTrees", "FriSites", "GravierSites",
    "Heart", "LandmineSVM", "MadelonSites", "Rastrigin10D", "Rosenbrock", "SemeionSites",
]  # fmt: skip
