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
    """Return the path of the data file `name`.

    Raises
    ------
    ConfigError
        If `FBO_FLOWER_DATA` is not set or its directory has no such file; the error says how to get it.
    """
    directory = os.environ.get(DATA_VARIABLE)
    recipe = RECIPES.get(name, "put it there")
    if not directory:
        raise ConfigError(
            f"{name}: expected in the directory named by {DATA_VARIABLE}, which is not set; "
            f"{recipe} and set {DATA_VARIABLE} to its directory"
        )
    path = path_of(directory, DATA_VARIABLE) / name
    if not path.is_file():
        raise ConfigError(
            f"{name}: expected in {directory} ({DATA_VARIABLE}), but there is no such file; {recipe}"
        )
    return path


def convert_landmine(mat_path: str | Path, out_dir: str | Path) -> Path:
    """Split each field of `LandmineData.mat` into two halves as the authors of FTS did, and save the halves.

    Parameters
    ----------
    mat_path : a MATLAB file with cell arrays `feature` (29 of `(n_k, 9)`) and `label` (29 of `(n_k, 1)`)
    out_dir : created if it does not exist

    Returns
    -------
    The npz file: `X_train, y_train, field_train, X_test, y_test, field_test`, fields one after another.

    Raises
    ------
    ConfigError
        If the file cannot be read or does not hold landmine fields.
    """
    from sklearn.model_selection import train_test_split

    train: list[_Rows] = []
    test: list[_Rows] = []
    for field, (x, y) in enumerate(_read_fields(Path(mat_path))):
        x_train, x_test, y_train, y_test = train_test_split(x, y, test_size=0.5, stratify=y, random_state=0)
        train.append((x_train, y_train, np.full(len(y_train), field, dtype=np.int16)))
        test.append((x_test, y_test, np.full(len(y_test), field, dtype=np.int16)))
    arrays = {
        f"{column}_{half}": np.concatenate([rows[index] for rows in halves])
        for half, halves in (("train", train), ("test", test))
        for index, column in enumerate(("X", "y", "field"))
    }
    path = path_of(out_dir) / LANDMINE_FILE
    with atomic_file(path) as stream:
        np.savez_compressed(stream, allow_pickle=False, **arrays)
    return path


_Rows = tuple[NDArray[np.float64], NDArray[np.int8], NDArray[np.int16]]


def _read_fields(path: Path) -> list[tuple[NDArray[np.float64], NDArray[np.int8]]]:
    cells = _read_cells(path)
    fields = []
    for field, (feature, label) in enumerate(zip(cells["feature"], cells["label"], strict=True)):
        try:
            x = np.ascontiguousarray(feature, dtype=np.float64)
            y = np.ravel(np.asarray(label, dtype=np.float64))
        except (TypeError, ValueError) as error:
            raise ConfigError(f"{path}: field {field}: expected arrays of numbers ({error})") from error
        if x.ndim != 2 or x.shape[0] != y.size or not np.isfinite(x).all():
            raise ConfigError(
                f"{path}: field {field}: expected a finite row of features per label, "
                f"got features {x.shape} and {y.size} labels"
            )
        num_mines = int(np.sum(y == 1))
        if not np.isin(y, (0, 1)).all() or min(num_mines, y.size - num_mines) < 2:
            raise ConfigError(
                f"{path}: field {field}: expected labels 0 and 1, two or more of each, "
                f"got values {np.unique(y)[:5].tolist()} with {num_mines} ones"
            )
        fields.append((x, y.astype(np.int8)))
    return fields


def _read_cells(path: Path) -> dict[str, NDArray[Any]]:
    """Read the two cell arrays, each as `NUM_LANDMINE_FIELDS` objects."""
    from scipy.io import loadmat

    if not path.is_file():
        raise ConfigError(f"{path}: expected a MATLAB file, but there is no such file")
    try:
        content = loadmat(path, variable_names=["feature", "label"])
    except Exception as error:  # on other files scipy raises IndexError, TypeError and others
        raise ConfigError(f"{path}: expected a MATLAB file (version 7.2 or older), got: {error}") from error
    cells = {name: np.ravel(content.get(name, ())) for name in ("feature", "label")}
    for name, cell in cells.items():
        if cell.size != NUM_LANDMINE_FIELDS:
            raise ConfigError(
                f"{path}: {name}: expected a cell array of {NUM_LANDMINE_FIELDS} fields, got {cell.size}"
            )
    return cells
