"""The further data sets of RFMS that are split into five sites [Sun2019, section 4.3].

The paper's OpenML and GEO data are replaced: madelon, Friedman's `fri_c4` with 100 features (500 of 1000
rows, for the paper's ratio of features to rows), semeion digits classified by parity as in `gina_agnostic`,
and a single cohort of gene expression (Gravier et al. 2010). Breast cancer is in the package.

References
----------
[Sun2019] Sun et al. High dimensional restrictive federated model selection with multi-objective Bayesian
optimization over shifted distributions. IntelliSys 2019.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np

from fbo_flower.clients import Bag
from fbo_flower.errors import ConfigError
from fbo_flower.numerics.seeding import generator
from fbo_flower.simulation.problems import FiveSites, bag
from studies.problems.data import FRI_FILE, GRAVIER_FILE, MADELON_FILE, SEMEION_FILE, data_file

FRI_ROWS = 500


@dataclass(frozen=True)
class StoredSites(FiveSites):
    """Five sites from a data file.

    Attributes
    ----------
    label : name of the file's array that holds the classes
    """

    file: ClassVar[str]
    label: ClassVar[str] = "y"

    def path(self) -> str:
        return str(data_file(self.file))

    def data(self, path: str) -> Bag:
        return _stored(path, self.label)


@dataclass(frozen=True)
class MadelonSites(StoredSites):
    """Artificial: 2000 rows, 20 features that matter among 500."""

    name: ClassVar[str] = "madelon-5sites"
    file: ClassVar[str] = MADELON_FILE


@dataclass(frozen=True)
class FriSites(StoredSites):
    """Friedman's function above its mean or not: 500 rows of 100 features, drawn by the seed."""

    name: ClassVar[str] = "fri-5sites"
    file: ClassVar[str] = FRI_FILE
    label: ClassVar[str] = "y_binary"

    def data(self, path: str) -> Bag:
        x, y = super().data(path)
        rows = np.sort(generator(self.seed, self.name, "rows").choice(len(y), FRI_ROWS, replace=False))
        return Bag(x[rows], y[rows])


@dataclass(frozen=True)
class SemeionSites(StoredSites):
    """Odd or even handwritten digit: 1593 rows of 256 pixels."""

    name: ClassVar[str] = "semeion-5sites"
    file: ClassVar[str] = SEMEION_FILE
    label: ClassVar[str] = "y_parity"


@dataclass(frozen=True)
class GravierSites(StoredSites):
    """Poor outcome of a breast cancer from gene expression: 168 rows of 2905 genes."""

    openbox: int = 3
    lockbox: int = 2

    name: ClassVar[str] = "gravier-5sites"
    file: ClassVar[str] = GRAVIER_FILE


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
