from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fbo_flower.clients import ObjectiveContext
from fbo_flower.numerics.seeding import generator
from fbo_flower.simulation.problems import BreastCancerSites
from studies.papers.rfms import tables as rfms_tables
from studies.papers.rfms.tables import Key, LossTable, design, keys, load_table, run, tabulate


def context(partition: int) -> ObjectiveContext:
    return ObjectiveContext(str(partition), partition, 0, 1, generator(0))


def table(openbox: int, stop: int, **options: Any) -> LossTable:
    options = {"split": "drc", **options}
    key = Key("breast-cancer-5sites", 0, openbox, options)
    return LossTable(**tabulate(key, 0, stop, num_configs=64))


@pytest.mark.parametrize("learner", ["elastic-net", "svm", "forest"])
def test_a_table_holds_what_sites_would_answer_one_by_one(learner: Any) -> None:
    options = {"learner": learner, "class_weight": True, "max_trees": 101}
    found = table(2, 1 if learner == "forest" else 3, **options)
    problem = BreastCancerSites(5, 0, openbox=2, lockbox=4, **options)  # type: ignore[arg-type]
    site = problem.site_objective()
    for i, point in enumerate(found.points):
        local, model, _ = site.train(problem.space.decode(point), context(2))
        assert found.local[i] == pytest.approx(local, abs=1e-12)
        answers: dict[str, list[Any]] = {
            rows: [site.judge(model.predict, rows, context(k)) for k in range(5)]
            for rows in ("inbag", "outbag", "all")
        }
        for rows, losses in (("inbag", found.inbag), ("outbag", found.outbag), ("all", found.lockbox)):
            assert losses[i] == pytest.approx([judged.loss for judged in answers[rows]], abs=1e-12)
        curators = [k for k in range(5) if problem.role(k) == "curator"]
        weighted = np.average(
            [answers["inbag"][k].loss for k in curators],
            weights=[answers["inbag"][k].num_rows for k in curators],
        )
        assert found.remote(curators)[i] == pytest.approx(weighted, abs=1e-12)


def test_a_configuration_that_fails_is_not_a_number_and_does_not_stop_the_table(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = table(1, 4)
    calls = iter(range(10_000))
    loss = rfms_tables._fold_loss

    def failing(*arguments: Any) -> float:
        if next(calls) == 0:
            raise ValueError("planted")
        return loss(*arguments)

    monkeypatch.setattr(rfms_tables, "_fold_loss", failing)
    found = table(1, 4)
    assert np.isnan(found.local).tolist() == [True, False, False, False]
    assert np.isnan(found.inbag[0]).all()
    assert np.array_equal(found.lockbox[1:], whole.lockbox[1:])


def test_tables_are_computed_in_chunks_and_found_again(tmp_path: Path) -> None:
    key = Key("breast-cancer-5sites", 0, 2, {"split": "srs"})
    seen: list[tuple[int, int]] = []
    for _ in range(2):
        run(tmp_path, [key], 1, lambda _, done, of: seen.append((done, of)), num_configs=50)
    assert seen == [(0, 2), (1, 2), (2, 2), (2, 2)]
    found = load_table(tmp_path, key, 50)
    space = BreastCancerSites(5, 0).space
    assert np.array_equal(found.points, design(space, 50))
    assert found.fold_losses.shape == (50, 10)
    assert found.wrong.shape == (50, 5, 2, 2)
    assert found.rows.sum() == 569


def test_sites_of_one_class_get_no_table() -> None:
    assert [key.openbox for key in keys("breast-cancer-5sites", [7], {"split": "drc"})] == [0, 1, 2, 3]
    assert len({str(key) for key in keys("breast-cancer-5sites", [0, 1], {"split": "srs"})}) == 10
