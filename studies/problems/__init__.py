"""The problems of the papers, by name: `import studies` adds them to those of the package."""

from __future__ import annotations

from fbo_flower.simulation import PROBLEMS, Problem
from studies.problems.california_trees import CaliforniaTrees
from studies.problems.five_sites import FriSites, GravierSites, MadelonSites, SemeionSites
from studies.problems.heart import Heart
from studies.problems.landmine_svm import LandmineSVM
from studies.problems.mlp import BreastCancerMLP, CaliforniaMLP
from studies.problems.parkinsons_lr import ParkinsonsLR
from studies.problems.shared_functions import Rosenbrock
from studies.problems.xarmed import Ackley, Rastrigin10D

OF_PAPERS: tuple[type[Problem], ...] = (
    LandmineSVM,
    ParkinsonsLR,
    Ackley,
    Rastrigin10D,
    Rosenbrock,
    BreastCancerMLP,
    CaliforniaMLP,
    CaliforniaTrees,
    Heart,
    MadelonSites,
    FriSites,
    SemeionSites,
    GravierSites,
)
PROBLEMS.update({problem.name: problem for problem in OF_PAPERS})

__all__ = [
    "OF_PAPERS",
    "Ackley",
    "BreastCancerMLP",
    "CaliforniaMLP",
    "CaliforniaTrees",
    "FriSites",
    "GravierSites",
    "Heart",
    "LandmineSVM",
    "MadelonSites",
    "ParkinsonsLR",
    "Rastrigin10D",
    "Rosenbrock",
    "SemeionSites",
]
