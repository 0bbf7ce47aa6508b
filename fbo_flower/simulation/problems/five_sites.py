"""Data sets that are split into five sites, as in the paper's semi-simulation [Sun2019, section 4.3].

The paper's OpenML and GEO data are replaced: Wisconsin breast cancer (bundled with scikit-learn), madelon,
Friedman's `fri_c4` with 100 features (500 of 1000 rows, for the paper's ratio of features to rows), semeion
digits classified by parity as in `gina_agnostic`, and a single cohort of gene expression (Gravier et al.
2010).

References
----------
[Sun2019] Sun et al. High dimensional restrictive federated model selection with multi-objective Bayesian
optimization over shifted distributions. IntelliSys 2019.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from fbo_flower.clients.site import Bag
from fbo_flower.errors import ConfigError
from fbo_flower.numerics.seeding import generator
from fbo_flower.numerics.threads import limit_new_libraries, single_thread
from fbo_flower.simulation.data import FRI_FILE, GRAVIER_FILE, MADELON_FILE, SEMEION_FILE
from fbo_flower.simulation.partitioners_paired import clustered, stratified_random
from fbo_flower.simulation.problems.sites import SitesProblem, bag

NUM_SITES = 5
FRI_ROWS = 500


@dataclass(frozen=True)
class FiveSites(SitesProblem):
    """A data set that is split into five sites.

    Attributes
    ----------
    split : "drc": by clusters, so that features and prevalence differ between sites; "srs": at random
    variance : share of variance that the principal components for "drc" keep; the paper uses .1 and .5
    label : name of the file's array that holds the classes
    """

    split: Literal["drc", "srs"] = "drc"
    variance: float = 0.1

    label: ClassVar[str] = "y"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.expect("variance", 0 < self.variance < 1, "a number between 0 and 1")

    def data(self, path: str) -> Bag:
        """Return all rows, before the split into sites."""
        return _stored(path, self.label)

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


@dataclass(frozen=True)
class MadelonSites(FiveSites):
    """Artificial: 2000 rows, 20 features that matter among 500."""

    name: ClassVar[str] = "madelon-5sites"
    file: ClassVar[str] = MADELON_FILE


@dataclass(frozen=True)
class FriSites(FiveSites):
    """Friedman's function above its mean or not: 500 rows of 100 features, drawn by the seed."""

    name: ClassVar[str] = "fri-5sites"
    file: ClassVar[str] = FRI_FILE
    label: ClassVar[str] = "y_binary"

    def data(self, path: str) -> Bag:
        x, y = super().data(path)
        rows = np.sort(generator(self.seed, self.name, "rows").choice(len(y), FRI_ROWS, replace=False))
        return Bag(x[rows], y[rows])


@dataclass(frozen=True)
class SemeionSites(FiveSites):
    """Odd or even handwritten digit: 1593 rows of 256 pixels."""

    name: ClassVar[str] = "semeion-5sites"
    file: ClassVar[str] = SEMEION_FILE
    label: ClassVar[str] = "y_parity"


@dataclass(frozen=True)
class GravierSites(FiveSites):
    """Poor outcome of a breast cancer from gene expression: 168 rows of 2905 genes."""

    openbox: int = 3
    lockbox: int = 2

    name: ClassVar[str] = "gravier-5sites"
    file: ClassVar[str] = GRAVIER_FILE


@lru_cache(maxsize=1)
def _breast_cancer() -> Bag:
    from sklearn.datasets import load_breast_cancer

    x, y = load_breast_cancer(return_X_y=True)
    return bag(np.array(x, dtype=np.float64), np.array(y, dtype=np.intp))


@lru_cache(maxsize=4)
def _stored(path: str, label: str) -> Bag:
    with np.load(path, allow_pickle=False) as file:
        if not {"X", label} <= set(file.files):
            raise ConfigError(f"{path}: expected the arrays X and {label}, got {', '.join(file.files)}")
        x, y = file["X"].astype(np.float64), file[label]
    if x.ndim != 2 or y.shape != (len(x),) or not np.isfinite(x).all() or not np.isin(y, (0, 1)).all():
        raise ConfigError(
            f"{path}: expected finite rows X and labels {label} of 0 and 1, got {x.shape} and {y.shape}"
        )
    return bag(x, y.astype(np.intp))


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
