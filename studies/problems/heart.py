"""Detect heart disease in four hospitals: sites whose distributions differ by nature.

Cleveland, Hungary, Switzerland and the veterans' hospital of Long Beach recorded the same features of
920 patients; 46, 36, 94 and 75 % of them are ill. Nine features are used, chest pain one-hot. We leave
out `slope`, `ca` and `thal`, which three of the hospitals hardly recorded and which favour Cleveland, and
`restecg`, whose three codes the hospitals used differently (1 is 1 % at Cleveland, 47 % at Long Beach).
A cholesterol or a blood pressure of 0 is a missing value; Switzerland recorded no cholesterol at all.

References
----------
Detrano et al. International application of a new probability algorithm for the diagnosis of coronary artery
disease. American Journal of Cardiology 64, 1989. UCI Machine Learning Repository, data set 45.
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
from fbo_flower.simulation.problems import SitesProblem, bag
from studies.problems.data import HEART_FILE, data_file

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
    with open(path, encoding="utf-8", newline="") as lines:
        patients = list(csv.DictReader(lines))
    missing = {"site", "cp", "num", *NUMBERS} - set(patients[0] if patients else ())
    if missing:
        raise ConfigError(f"{path}: expected the columns {', '.join(sorted(missing))}, found none")
    found = sorted({patient["site"] for patient in patients})
    if tuple(found) != HOSPITALS:
        raise ConfigError(f"{path}: expected the sites {', '.join(HOSPITALS)}, got {', '.join(found)[:200]}")
    return tuple(_hospital([p for p in patients if p["site"] == site], path) for site in HOSPITALS)


def _hospital(patients: list[dict[str, str]], path: str) -> Bag:
    try:
        x = [_features(patient) for patient in patients]
        y = [float(patient["num"]) > 0 for patient in patients]
    except ValueError as error:
        raise ConfigError(f"{path}: expected numbers ({error})") from error
    return bag(np.array(x, dtype=np.float64), np.array(y, dtype=np.intp))


def _features(patient: dict[str, str]) -> list[float]:
    numbers = [_cell(patient[name], zero_is_missing=name in ZERO_IS_MISSING) for name in NUMBERS]
    pain = _cell(patient["cp"])
    if pain not in CHEST_PAIN:
        raise ValueError(f"cp: 1, 2, 3 or 4, got {pain}")
    return numbers + [float(pain == kind) for kind in CHEST_PAIN]


def _cell(text: str, zero_is_missing: bool = False) -> float:
    """Return the number in a cell of the table, NaN if it is missing."""
    value = float(text) if text else math.nan
    return math.nan if zero_is_missing and value == 0 else value
