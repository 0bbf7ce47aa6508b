"""The further data sets of RFMS: four split into five sites [Sun2019, section 4.3], and four hospitals.

The paper's OpenML and GEO data are replaced: madelon, Friedman's `fri_c4` with 100 features (500 of 1000
rows, for the paper's ratio of features to rows), semeion digits classified by parity as in `gina_agnostic`,
and a single cohort of gene expression (Gravier et al. 2010). Breast cancer is in the package.

References
----------
[Sun2019] Sun et al. High dimensional restrictive federated model selection with multi-objective Bayesian
optimization over shifted distributions. IntelliSys 2019.
[Detrano1989] Detrano et al. International application of a new probability algorithm for the diagnosis of
coronary artery disease. American Journal of Cardiology 64, 1989. UCI data set 45.

The hospitals differ by nature [Detrano1989]. Cleveland, Hungary, Switzerland and the veterans' hospital of
Long Beach recorded the same features of 920 patients; 46, 36, 94 and 75 % of them are ill. Nine features are
used, chest pain one-hot. We leave out `slope`, `ca` and `thal`, which three of the hospitals hardly recorded
and which favour Cleveland, and `restecg`, whose three codes the hospitals used differently (1 is 1 % at
Cleveland, 47 % at Long Beach). A cholesterol or a blood pressure of 0 is a missing value; Switzerland
recorded no cholesterol at all.
"""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np

from fbo_flower.clients import Bag
from fbo_flower.errors import ConfigError
from fbo_flower.numerics.seeding import generator
from fbo_flower.simulation.problems import FiveSites, SitesProblem, bag
from studies.problems.data import FRI_FILE, GRAVIER_FILE, HEART_FILE, MADELON_FILE, SEMEION_FILE, data_file

HOSPITALS = ("cleveland", "hungarian", "switzerland", "va")
NUMBERS = ("age", "sex", "trestbps", "chol", "fbs", "thalach", "exang", "oldpeak")
ZERO_IS_MISSING = ("trestbps", "chol")
CHEST_PAIN = (1.0, 2.0, 3.0, 4.0)


@dataclass(frozen=True)
class Heart(SitesProblem):
    """Disease or none from nine clinical features; agents are the hospitals, in the order of `HOSPITALS`."""

    name: ClassVar[str] = "heart-4sites"
    file: ClassVar[str] = HEART_FILE
    default_agents: ClassVar[int] = len(HOSPITALS)
    max_agents: ClassVar[int | None] = len(HOSPITALS)

    def path(self) -> str:
        return str(data_file(self.file))

    def rows(self, path: str) -> tuple[Bag, ...]:
        return _hospitals(path)


@lru_cache(maxsize=2)
def _hospitals(path: str) -> tuple[Bag, ...]:
    with open(path, encoding="utf-8-sig", newline="") as lines:
        patients = list(csv.DictReader(lines))
    missing = {"site", "cp", "num", *NUMBERS} - set(patients[0] if patients else ())
    if missing:
        raise ConfigError(f"{path}: expected the columns {', '.join(sorted(missing))}, found none")
    found = tuple(sorted({patient["site"] for patient in patients}))
    if found != HOSPITALS:
        raise ConfigError(f"{path}: expected the sites {', '.join(HOSPITALS)}, got {', '.join(found)[:200]}")
    try:
        rows = [(p["site"], _features(p), float(p["num"]) > 0) for p in patients]
    except ValueError as error:
        raise ConfigError(f"{path}: expected numbers ({error})") from error
    bags = []
    for site in HOSPITALS:
        x, y = zip(*((x, y) for at, x, y in rows if at == site), strict=True)
        bags.append(bag(np.array(x, dtype=np.float64), np.array(y, dtype=np.intp)))
    return tuple(bags)


def _features(patient: dict[str, str]) -> list[float]:
    values = {name: float(patient[name]) if patient[name] else math.nan for name in (*NUMBERS, "cp")}
    if values["cp"] not in CHEST_PAIN:
        raise ValueError(f"cp: 1, 2, 3 or 4, got {values['cp']}")
    values |= {name: math.nan for name in ZERO_IS_MISSING if values[name] == 0}
    return [*(values[name] for name in NUMBERS), *(float(values["cp"] == kind) for kind in CHEST_PAIN)]


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


class MadelonSites(StoredSites):
    """Artificial: 2000 rows, 20 features that matter among 500."""

    name: ClassVar[str] = "madelon-5sites"
    file: ClassVar[str] = MADELON_FILE


@dataclass(frozen=True)
class FriSites(StoredSites):
    """Friedman's function above its mean or not: 500 of 1000 rows of 100 features, drawn by the seed."""

    name: ClassVar[str] = "fri-5sites"
    file: ClassVar[str] = FRI_FILE
    label: ClassVar[str] = "y_binary"

    def data(self, path: str) -> Bag:
        x, y = super().data(path)
        rows = np.sort(generator(self.seed, self.name, "rows").choice(len(y), 500, replace=False))
        return Bag(x[rows], y[rows])


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
