"""The four hospitals of heart-4sites."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from real_data import needs_data

from fbo_flower.clients import ObjectiveContext
from fbo_flower.errors import ConfigError
from fbo_flower.numerics.seeding import generator
from studies.problems import Heart
from studies.problems.data import DATA_VARIABLE
from studies.problems.sites import NUMBERS, _hospitals

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
def test_a_file_that_holds_something_else_is_refused(tmp_path: Path, rows: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        _hospitals(heart_file(tmp_path, rows))
