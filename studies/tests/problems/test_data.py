"""Data files: the landmine fields made from the user's own copy, and the four hospitals."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from real_data import needs_data
from scipy.io import savemat

from fbo_flower.errors import ConfigError
from studies.problems import Heart
from studies.problems.data import (
    DATA_VARIABLE,
    LANDMINE_FILE,
    NUM_LANDMINE_FIELDS,
    convert_landmine,
    data_file,
)
from studies.problems.sites import NUMBERS, _hospitals

Fields = list[tuple[np.ndarray, np.ndarray]]


def save_fields(path: Path, fields: Fields) -> Path:
    feature, label = np.empty((1, len(fields)), dtype=object), np.empty((1, len(fields)), dtype=object)
    for k, (x, y) in enumerate(fields):
        feature[0, k], label[0, k] = x, y[:, None]
    savemat(path, {"feature": feature, "label": label})
    return path


def test_a_missing_file_is_named_with_where_it_was_looked_for_and_how_it_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(DATA_VARIABLE, str(tmp_path))
    with pytest.raises(ConfigError) as caught:
        data_file(LANDMINE_FILE)
    assert str(tmp_path) in str(caught.value)
    assert "`python -m studies data landmine LandmineData.mat`" in str(caught.value)


@needs_data
def test_converting_the_raw_fields_gives_the_authors_split(tmp_path: Path) -> None:
    with np.load(data_file("landmine_raw.npz"), allow_pickle=False) as raw:
        x, y, field = raw["X"], raw["y"], raw["field"]
    fields = [(x[field == k], y[field == k]) for k in range(NUM_LANDMINE_FIELDS)]
    path = convert_landmine(save_fields(tmp_path / "LandmineData.mat", fields), tmp_path / "new")
    assert path == tmp_path / "new" / LANDMINE_FILE
    with (
        np.load(path, allow_pickle=False) as converted,
        np.load(data_file(LANDMINE_FILE), allow_pickle=False) as authors,
    ):
        assert set(converted.files) == set(authors.files)
        for name in authors.files:
            assert converted[name].dtype == authors[name].dtype
            assert np.array_equal(converted[name], authors[name])


def fields(x: np.ndarray | None = None, y: np.ndarray | None = None) -> Fields:
    """Small fields, of which the fifth has other features or labels."""
    labels = np.arange(12) % 3 == 0
    made = [(np.ones((12, 9)), labels * 1) for _ in range(NUM_LANDMINE_FIELDS)]
    made[4] = (made[4][0] if x is None else x, made[4][1] if y is None else y)
    return made


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (fields()[:28], r"own\.mat: expected 29 fields, got 28"),
        ({"something": np.ones(3)}, "cell arrays feature and label"),
        (b"not a MATLAB file at all", r"own\.mat: expected a MATLAB file"),
        (None, "no such file"),
        (fields(x=np.zeros((11, 9))), "field 4: expected a finite row of features per label"),
        (fields(x=np.where(np.eye(12, 9) == 1, np.nan, 0.0)), "field 4: expected a finite row"),
        (fields(y=np.full(12, 2)), "field 4: expected labels 0 and 1"),
        (fields(y=np.eye(12, dtype=int)[0]), "field 4: expected labels 0 and 1"),
    ],
    ids=range(8),
)
def test_a_file_that_holds_something_else_is_refused(content: object, match: str, tmp_path: Path) -> None:
    path = tmp_path / "own.mat"
    if isinstance(content, list):
        save_fields(path, content)
    elif isinstance(content, dict):
        savemat(path, content)
    elif isinstance(content, bytes):
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=match):
        convert_landmine(path, tmp_path)


# -- the four hospitals of heart-4sites ----------------------------------------------------------


@needs_data
def test_the_hospitals_are_those_of_the_literature() -> None:
    hospitals = Heart(4, 0).rows(str(Path(os.environ[DATA_VARIABLE]) / Heart.file))
    assert [len(bag.y) for bag in hospitals] == [303, 294, 123, 200]
    assert [round(float(bag.y.mean()), 3) for bag in hospitals] == [0.459, 0.361, 0.935, 0.745]
    missing = [dict(zip(NUMBERS, np.isnan(bag.x).sum(axis=0).tolist(), strict=False)) for bag in hospitals]
    assert not any(missing[0].values())  # Cleveland is complete: an imputer must not depend on that
    assert missing[2]["chol"] == 123
    assert missing[3]["chol"] == 49 + 7
    assert missing[3]["trestbps"] == 56 + 1


SITES = ("cleveland", "hungarian", "switzerland", "va")


def heart_file(directory: Path, sites: tuple[str, ...], cells: str) -> str:
    path = directory / "heart.csv"
    head = "site,age,sex,cp,trestbps,chol,fbs,restecg,thalach,exang,oldpeak,slope,ca,thal,num"
    rows = [f"{site},{cells},0,0,,2,150,0,2.5,3,0,6,{num}" for num, site in enumerate(sites)]
    path.write_text("\n".join([head, *rows]) + "\n")
    return str(path)


def test_a_row_is_read_cell_by_cell(tmp_path: Path) -> None:
    hospitals = _hospitals(heart_file(tmp_path, SITES, "63,1,3"))
    expected = [63, 1, np.nan, np.nan, np.nan, 150, 0, 2.5, 0, 0, 1, 0]
    assert all(np.array_equal(bag.x[0], expected, equal_nan=True) for bag in hospitals)
    assert [bag.y[0] for bag in hospitals] == [0, 1, 1, 1]


@pytest.mark.parametrize(
    ("sites", "cells", "message"),
    [
        ((), "", "expected the columns age, chol"),
        (SITES[:1], "63,1,3", "expected the sites cleveland, hungarian"),
        (SITES, "63,1,5", r"expected numbers \(cp: 1, 2, 3 or 4, got 5"),
        (SITES, "old,1,1", "expected numbers .*'old'"),
    ],
)
def test_a_file_of_other_hospitals_is_refused(
    tmp_path: Path, sites: tuple[str, ...], cells: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        _hospitals(heart_file(tmp_path, sites, cells))
