from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from real_data import needs_data
from scipy.io import savemat

from fbo_flower.clients import ObjectiveContext
from fbo_flower.errors import ConfigError
from fbo_flower.numerics.seeding import generator
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


def small_fields(num_rows: int = 12) -> Fields:
    rng = generator(0, "landmine")
    labels = np.arange(num_rows) % 3 == 0
    return [(rng.standard_normal((num_rows, 9)) + k, labels * 1) for k in range(NUM_LANDMINE_FIELDS)]


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


def test_a_converted_file_holds_a_stratified_half_of_every_field(tmp_path: Path) -> None:
    fields = small_fields()
    path = convert_landmine(
        save_fields(tmp_path / "LandmineData.mat", fields), tmp_path / "new" / "directory"
    )
    assert path == tmp_path / "new" / "directory" / LANDMINE_FILE
    with np.load(path, allow_pickle=False) as data:
        arrays = dict(data)
    assert sorted(arrays) == ["X_test", "X_train", "field_test", "field_train", "y_test", "y_train"]
    assert {name: array.dtype for name, array in arrays.items() if name.endswith("train")} == {
        "X_train": np.float64,
        "y_train": np.int8,
        "field_train": np.int16,
    }
    for k, (x, y) in enumerate(fields):
        train, test = arrays["field_train"] == k, arrays["field_test"] == k
        assert train.sum() == test.sum() == len(y) // 2
        assert arrays["y_train"][train].sum() == arrays["y_test"][test].sum() == y.sum() // 2
        both = np.concatenate([arrays["X_train"][train], arrays["X_test"][test]])
        assert np.array_equal(np.sort(both[:, 0]), np.sort(x[:, 0]))


@needs_data
def test_converting_the_raw_fields_gives_the_authors_split(tmp_path: Path) -> None:
    with np.load(data_file("landmine_raw.npz"), allow_pickle=False) as raw:
        x, y, field = raw["X"], raw["y"], raw["field"]
    fields = [(x[field == k], y[field == k]) for k in range(NUM_LANDMINE_FIELDS)]
    path = convert_landmine(save_fields(tmp_path / "LandmineData.mat", fields), tmp_path)
    with (
        np.load(path, allow_pickle=False) as converted,
        np.load(data_file(LANDMINE_FILE), allow_pickle=False) as authors,
    ):
        assert set(converted.files) == set(authors.files)
        for name in authors.files:
            assert converted[name].dtype == authors[name].dtype
            assert np.array_equal(converted[name], authors[name])


def with_field(number: int, x: np.ndarray | None = None, y: np.ndarray | None = None) -> Fields:
    """Small fields, of which one has other features or labels."""
    fields = small_fields()
    fields[number] = (fields[number][0] if x is None else x, fields[number][1] if y is None else y)
    return fields


ONE_NAN = np.where(np.eye(12, 9) == 1, np.nan, 0.0)


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (small_fields()[:28], r"own\.mat: feature: expected a cell array of 29 fields, got 28"),
        ({"something": np.ones(3)}, "feature: expected a cell array"),
        (b"", r"own\.mat: expected a MATLAB file"),
        (b"not a MATLAB file at all", r"own\.mat: expected a MATLAB file"),
        (b"\x89HDF\r\n" + bytes(600), r"own\.mat: expected a MATLAB file"),
        (None, "own"),
        (with_field(4, x=np.zeros((11, 9))), "field 4: expected a finite row of features per label"),
        (with_field(0, x=ONE_NAN), "field 0: expected a finite row"),
        (with_field(7, y=np.full(12, 2)), "field 7: expected labels 0 and 1, two or more of each"),
        (with_field(7, y=np.zeros(12, dtype=int)), "field 7: expected labels 0 and 1, two or more of each"),
        (with_field(7, y=np.eye(12, dtype=int)[0]), "field 7: expected labels 0 and 1, two or more of each"),
    ],
    ids=range(11),
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


HEADER = "site,age,sex,cp,trestbps,chol,fbs,restecg,thalach,exang,oldpeak,slope,ca,thal,num"


def context(partition: int) -> ObjectiveContext:
    return ObjectiveContext(str(partition), partition, 0, 1, generator(0))


@needs_data
def test_the_hospitals_are_those_of_the_literature() -> None:
    problem = Heart(4, 0)
    hospitals = problem.rows(str(Path(os.environ[DATA_VARIABLE]) / Heart.file))
    assert [len(bag.y) for bag in hospitals] == [303, 294, 123, 200]
    assert [round(float(bag.y.mean()), 3) for bag in hospitals] == [0.459, 0.361, 0.935, 0.745]
    missing = [dict(zip(NUMBERS, np.isnan(bag.x).sum(axis=0).tolist(), strict=False)) for bag in hospitals]
    assert not any(missing[0].values())  # Cleveland is complete: an imputer must not depend on that
    assert missing[2]["chol"] == 123
    assert missing[3]["chol"] == 49 + 7
    assert missing[3]["trestbps"] == 56 + 1
    for bag in hospitals:
        assert (bag.x[:, len(NUMBERS) :].sum(axis=1) == 1).all()


@needs_data
def test_a_model_of_complete_rows_can_be_judged_where_cells_are_missing() -> None:
    problem = Heart(4, 0, learner="svm")
    site = problem.site_objective()
    model = site.train({"C": 1.0, "sigma": 0.05}, context(0)).model
    losses = [site.judge(model.predict, "all", context(k)).loss for k in range(4)]
    assert losses[0] < 0.25
    assert all(loss < 0.45 for loss in losses)


def heart_file(directory: Path, rows: list[str]) -> str:
    path = directory / "heart.csv"
    path.write_text("\n".join([HEADER, *rows]) + "\n")
    return str(path)


def test_a_row_is_read_cell_by_cell(tmp_path: Path) -> None:
    rows = [
        f"{site},63,1,3,0,0,,2,150,0,2.5,3,0,6,{num}"
        for num, site in enumerate(("cleveland", "hungarian", "switzerland", "va"))
    ]
    hospitals = _hospitals(heart_file(tmp_path, rows))
    expected = [63, 1, np.nan, np.nan, np.nan, 150, 0, 2.5, 0, 0, 1, 0]
    assert all(np.array_equal(bag.x[0], expected, equal_nan=True) for bag in hospitals)
    assert [bag.y[0] for bag in hospitals] == [0, 1, 1, 1]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "expected the columns age, chol"),
        (["cleveland,63,1,3,0,0,,2,150,0,2.5,3,0,6,0"], "expected the sites cleveland, hungarian"),
        ([f"{s},63,1,5,0,0,,2,150,0,2.5,3,0,6,0" for s in ("cleveland", "hungarian", "switzerland", "va")],
         r"expected numbers \(cp: 1, 2, 3 or 4, got 5"),
        ([f"{s},old,1,1,0,0,,2,150,0,2.5,3,0,6,0" for s in ("cleveland", "hungarian", "switzerland", "va")],
         "expected numbers .*'old'"),
    ],
)  # fmt: skip
def test_a_file_of_other_hospitals_is_refused(tmp_path: Path, rows: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        _hospitals(heart_file(tmp_path, rows))
