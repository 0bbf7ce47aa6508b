from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from real_data import needs_data
from scipy.io import savemat

from fbo_flower.errors import ConfigError
from fbo_flower.numerics.seeding import generator
from studies.problems.data import (
    DATA_VARIABLE,
    LANDMINE_FILE,
    NUM_LANDMINE_FIELDS,
    PARKINSONS_FILE,
    convert_landmine,
    data_file,
)

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


def test_a_data_file_is_found_in_the_directory_of_the_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "some.csv").write_text("1")
    monkeypatch.setenv(DATA_VARIABLE, str(tmp_path))
    assert data_file("some.csv") == tmp_path / "some.csv"


@pytest.mark.parametrize("name", [LANDMINE_FILE, PARKINSONS_FILE, "other.csv"])
def test_without_the_variable_the_error_names_the_file_and_the_variable(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(DATA_VARIABLE, raising=False)
    with pytest.raises(ConfigError) as caught:
        data_file(name)
    assert name in str(caught.value)
    assert "FBO_FLOWER_DATA, which is not set" in str(caught.value)
    assert "\n" not in str(caught.value)


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


def test_a_file_with_too_few_fields_is_refused(tmp_path: Path) -> None:
    path = save_fields(tmp_path / "short.mat", small_fields()[:28])
    with pytest.raises(ConfigError, match=r"short\.mat: feature: expected a cell array of 29 fields, got 28"):
        convert_landmine(path, tmp_path)


def test_a_file_without_the_cell_arrays_is_refused(tmp_path: Path) -> None:
    savemat(tmp_path / "other.mat", {"something": np.ones(3)})
    with pytest.raises(ConfigError, match="feature: expected a cell array"):
        convert_landmine(tmp_path / "other.mat", tmp_path)


@pytest.mark.parametrize("content", [b"", b"not a MATLAB file at all", b"\x89HDF\r\n" + bytes(600)])
def test_a_file_that_is_not_matlab_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "bad.mat").write_bytes(content)
    with pytest.raises(ConfigError, match=r"bad\.mat: expected a MATLAB file"):
        convert_landmine(tmp_path / "bad.mat", tmp_path)


def test_a_file_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="LandmineData"):
        convert_landmine(tmp_path / "LandmineData.mat", tmp_path)


def test_rows_that_do_not_match_their_labels_are_refused(tmp_path: Path) -> None:
    fields = small_fields()
    fields[4] = (fields[4][0][:-1], fields[4][1])
    with pytest.raises(ConfigError, match=r"field 4: expected a finite row of features per label"):
        convert_landmine(save_fields(tmp_path / "odd.mat", fields), tmp_path)


def test_features_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    fields = small_fields()
    fields[0][0][2, 3] = np.nan
    with pytest.raises(ConfigError, match=r"field 0: expected a finite row"):
        convert_landmine(save_fields(tmp_path / "nan.mat", fields), tmp_path)


@pytest.mark.parametrize("label", [np.full(12, 2), np.zeros(12, dtype=int), np.eye(12, dtype=int)[0]])
def test_labels_other_than_two_of_each_class_are_refused(label: np.ndarray, tmp_path: Path) -> None:
    fields = small_fields()
    fields[7] = (fields[7][0], label)
    with pytest.raises(ConfigError, match=r"field 7: expected labels 0 and 1, two or more of each"):
        convert_landmine(save_fields(tmp_path / "labels.mat", fields), tmp_path)
