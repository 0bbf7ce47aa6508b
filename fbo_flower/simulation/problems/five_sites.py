"""Data sets that are split into five sites, as in the paper's semi-simulation [Sun2019, section 4.3].

Here it is Wisconsin breast cancer, bundled with scikit-learn.

References
----------
[Sun2019] Sun et al. High dimensional restrictive federated model selection with multi-objective Bayesian
optimization over shifted distributions. IntelliSys 2019.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from fbo_flower.clients.site import Bag
from fbo_flower.numerics.seeding import generator
from fbo_flower.numerics.threads import limit_new_libraries, single_thread
from fbo_flower.simulation.partitioners_paired import clustered, stratified_random
from fbo_flower.simulation.problems.sites import SitesProblem, bag

NUM_SITES = 5


@dataclass(frozen=True)
class FiveSites(SitesProblem):
    """A data set that is split into five sites.

    Attributes
    ----------
    split : "drc": by clusters, so that features and prevalence differ between sites; "srs": at random
    variance : share of variance that the principal components for "drc" keep; the paper uses .1 and .5
    """

    split: Literal["drc", "srs"] = "drc"
    variance: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        self.expect("variance", 0 < self.variance < 1, "a number between 0 and 1")

    @abstractmethod
    def data(self, path: str) -> Bag:
        """Return all rows, before the split into sites."""

    def rows(self, path: str) -> tuple[Bag, ...]:
        return _split(type(self), self.seed, self.split, self.variance, path)


@dataclass(frozen=True)
class BreastCancerSites(FiveSites):
    """Benign (1) or malignant: 569 rows of 30 features."""

    openbox: int = 1
    lockbox: int = 2

    name: ClassVar[str] = "breast-cancer-5sites"

    def data(self, path: str) -> Bag:
        return _breast_cancer()


@lru_cache(maxsize=1)
def _breast_cancer() -> Bag:
    from sklearn.datasets import load_breast_cancer

    x, y = load_breast_cancer(return_X_y=True)
    return bag(np.array(x, dtype=np.float64), np.array(y, dtype=np.intp))


@lru_cache(maxsize=16)
def _split(problem: type[FiveSites], seed: int, split: str, variance: float, path: str) -> tuple[Bag, ...]:
    x, y = problem(NUM_SITES, seed).data(path)
    rng = generator(seed, problem.name, "sites", split)
    if split == "srs":
        parts: list[NDArray[np.intp]] = stratified_random(y, NUM_SITES, rng)
    else:
        with single_thread():  # rounding that depends on threads would move rows between clusters
            import sklearn.mixture  # noqa: F401  # loads libraries that the next line limits

            limit_new_libraries()
            parts = clustered(x, y, NUM_SITES, variance, rng)
    return tuple(bag(x[part], y[part]) for part in parts)
