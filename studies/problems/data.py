"""Find and make the data files that cannot be distributed with this package.

The environment variable `FBO_FLOWER_DATA` names their directory.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fbo_flower.errors import ConfigError
from fbo_flower.storage import atomic_file, path_of

DATA_VARIABLE = "FBO_FLOWER_DATA"
LANDMINE_FILE = "landmine_authors_split.npz"
NUM_LANDMINE_FIELDS = 29
PARKINSONS_FILE = "parkinsons_updrs.csv.gz"
CALIFORNIA_FILE = "california_housing.csv.gz"
HEART_FILE = "heart_disease_4sites.csv"
MADELON_FILE = "madelon.npz"
FRI_FILE = "fri_c4_1000_100.npz"
SEMEION_FILE = "semeion.npz"
GRAVIER_FILE = "gravier_breast.npz"

RECIPES = {
    LANDMINE_FILE: "make it with `python -m studies data landmine LandmineData.mat`",
    PARKINSONS_FILE: "gzip `parkinsons_updrs.data` of UCI data set 189 under this name",
    CALIFORNIA_FILE: "put a header line of its nine columns before StatLib's `cal_housing.data` and gzip it",
    HEART_FILE: "join the four `processed.*.data` of UCI data set 45 under a column `site`",
    MADELON_FILE: "save the 2000 training rows of UCI data set 171 as the arrays X and y, 0 or 1",
    FRI_FILE: "save OpenML data set 588 as the arrays X and y_binary, whether its target exceeds the mean",
    SEMEION_FILE: "save UCI data set 178 as the arrays X, 256 pixels, and y_parity, whether the digit is odd",
    GRAVIER_FILE: "save `gravier` of the R package datamicroarray as the arrays X and y, 1: poor outcome",
}


class Rows(NamedTuple):
    """Features `(n, d)` and targets `(n,)`."""

    x: NDArray[np.float64]
    y: NDArray[Any]


def standardised(
    x: NDArray[np.float64], y: NDArray[Any], train: NDArray[np.intp], validation: NDArray[np.intp]
) -> tuple[Rows, Rows]:
    """Return the training and the validation rows, features standardised by the training rows."""
    mean, stddev = x[train].mean(axis=0), x[train].std(axis=0)
    x = (x - mean) / np.where(stddev > 0, stddev, 1.0)
    return Rows(x[train], y[train]), Rows(x[validation], y[validation])


def data_file(name: str) -> Path:
    """Return the path of the data file `name`; ConfigError that says how to get it if it is not there."""
    directory = os.environ.get(DATA_VARIABLE)
    if not directory:
        raise ConfigError(
            f"{name}: expected in the directory named by {DATA_VARIABLE}, which is not set; "
            f"{RECIPES[name]} and set {DATA_VARIABLE} to its directory"
        )
    path = path_of(directory, DATA_VARIABLE) / name
    if not path.is_file():
        raise ConfigError(
            f"{name}: expected in {directory} ({DATA_VARIABLE}), but there is no such file; {RECIPES[name]}"
        )
    return path


def convert_landmine(mat_path: str | Path, out_dir: str | Path) -> Path:
    """Split each field of `LandmineData.mat` into two halves as the authors of FTS did, and save the halves.

    Returns the npz file, with the arrays `X_train, y_train, field_train, X_test, y_test, field_test`, fields
    one after another.

    Parameters
    ----------
    mat_path : a MATLAB file with cell arrays `feature` (29 of `(n_k, 9)`) and `label` (29 of `(n_k, 1)`)
    out_dir : created if it does not exist

    Raises
    ------
    ConfigError
        If the file cannot be read or does not hold landmine fields.
    """
    from sklearn.model_selection import train_test_split

    halves: dict[str, list[tuple[Any, ...]]] = {"train": [], "test": []}
    for field, (x, y) in enumerate(_read_fields(Path(mat_path))):
        parts = train_test_split(x, y, test_size=0.5, stratify=y, random_state=0)
        for name, x_half, y_half in zip(halves, parts[:2], parts[2:], strict=True):
            halves[name].append((x_half, y_half, np.full(len(y_half), field, dtype=np.int16)))
    arrays = {
        f"{column}_{half}": np.concatenate(parts)
        for half, rows in halves.items()
        for column, parts in zip(("X", "y", "field"), zip(*rows, strict=True), strict=True)
    }
    path = path_of(out_dir) / LANDMINE_FILE
    with atomic_file(path) as stream:
        np.savez_compressed(stream, allow_pickle=False, **arrays)
    return path


def _read_fields(path: Path) -> list[tuple[NDArray[np.float64], NDArray[np.int8]]]:
    from scipy.io import loadmat

    if not path.is_file():
        raise ConfigError(f"{path}: expected a MATLAB file, but there is no such file")
    try:
        content = loadmat(path, variable_names=["feature", "label"])
        fields = [
            (np.ascontiguousarray(x, dtype=np.float64), np.ravel(np.asarray(y, dtype=np.float64)))
            for x, y in zip(np.ravel(content["feature"]), np.ravel(content["label"]), strict=True)
        ]
    except Exception as error:  # on other files scipy raises IndexError, TypeError and others
        raise ConfigError(
            f"{path}: expected a MATLAB file (version 7.2 or older) with cell arrays feature and label of "
            f"numbers, got: {error!r}"
        ) from error
    if len(fields) != NUM_LANDMINE_FIELDS:
        raise ConfigError(f"{path}: expected {NUM_LANDMINE_FIELDS} fields, got {len(fields)}")
    for field, (x, y) in enumerate(fields):
        if x.ndim != 2 or len(x) != len(y) or not np.isfinite(x).all():
            raise ConfigError(
                f"{path}: field {field}: expected a finite row of features per label, "
                f"got features {x.shape} and {y.size} labels"
            )
        if not np.isin(y, (0, 1)).all() or min(np.sum(y == 1), np.sum(y == 0)) < 2:
            raise ConfigError(f"{path}: field {field}: expected labels 0 and 1, two or more of each")
    return [(x, y.astype(np.int8)) for x, y in fields]
