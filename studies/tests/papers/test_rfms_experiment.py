"""Replays of RFMS: the algorithm itself on a table, and what is measured of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fbo_flower.algorithms import RFMS
from fbo_flower.algorithms.messages import Replies
from fbo_flower.algorithms.records import Federation, Phase, Report
from fbo_flower.algorithms.rfms import state as rfms_state
from fbo_flower.clients import ObjectiveContext
from fbo_flower.numerics.seeding import generator
from fbo_flower.simulation.problems import BreastCancerSites, make_learner
from studies.papers.rfms import replay as rfms_replay
from studies.papers.rfms import tables as rfms_tables
from studies.papers.rfms.replay import (
    CHOICES,
    CRITERIA,
    HINDSIGHT,
    METHODS,
    ReplayRun,
    ReplaySetting,
    ServerView,
    Size,
    replay,
    shrunken,
)
from studies.papers.rfms.tables import INBAG, Key, LossTable, keys, tabulate

SPACE = make_learner("elastic-net").space
NUM_CONFIGS, NUM_SITES = 30, 4
START = np.array([3, 11, 7, 20, 2])


def table(seed: int = 0, failed: tuple[int, ...] = ()) -> LossTable:
    """Losses that are smooth in the configuration, with ties, another optimum at each site."""
    rng = np.random.default_rng(seed)
    points = SPACE.snap(rng.random((NUM_CONFIGS, SPACE.dimension)))
    rows = rng.integers(8, 30, (NUM_SITES, 2, 2)).astype(float)
    optima = rng.random((NUM_SITES, SPACE.dimension))
    rate = np.minimum(0.1 + np.square(points[:, None] - optima).sum(axis=2), 0.5)
    wrong = np.round(rate[:, :, None, None] * rows)
    folds = np.round(rate[:, :1] + 0.05 * rng.standard_normal((NUM_CONFIGS, 10)), 1)
    wrong[list(failed)] = folds[list(failed)] = np.nan
    return LossTable(points, folds, wrong, rows)


def strategy(setting: ReplaySetting, monkeypatch, **options):
    """Drive the algorithm by hand, with the table for sites; return the configurations and the last state."""
    found, points = setting.table, setting.table.points
    rows = found.rows[:, INBAG].sum(axis=-1)

    def over_the_table(function, space, taken, num_candidates, min_distance, rng):
        free = [i for i, x in enumerate(points) if not (taken == x).all(axis=1).any()]
        return points[[free[int(np.argmax(function(space.features(points[free]))))]]]

    monkeypatch.setattr(rfms_state, "maximise", over_the_table)
    names = [str(k) for k in range(NUM_SITES)]
    roles = dict.fromkeys(names, "curator")
    roles |= {str(setting.openbox): "openbox", str(setting.lockbox): "lockbox"}
    algorithm = RFMS(num_initial=len(START), num_trials=12, **options)
    state = algorithm.init(Federation(SPACE, tuple(names), roles), generator(0, "init"))
    state = replace(state, design=points[START])
    chosen = []
    for trial in range(algorithm.num_trials):
        rng = generator(5, "a", "b", trial)
        state, tasks = algorithm.ask(state, Phase.TRAIN, trial, names, rng)
        (task,) = tasks.values()
        (index,) = np.flatnonzero((points == task.arrays["point"]).all(axis=1))
        chosen.append(int(index))
        if np.isnan(found.local[index]):
            report = Report(trial, 1, 1, {}, {"failure": "planted"})
        else:
            values = {"loss": float(found.local[index]), "num_rows": int(rows[setting.openbox])}
            report = Report(trial, 1, 0, {"model": np.zeros(3, np.uint8)}, values)
        state = algorithm.tell(state, Phase.TRAIN, Replies({str(setting.openbox): report}))
        state, tasks = algorithm.ask(state, Phase.EVALUATE, trial, names, rng)
        answers = {
            agent: Report(
                trial,
                1,
                0,
                {},
                {"loss": float(found.inbag[index, int(agent)]), "num_rows": int(rows[int(agent)])},
            )
            for agent in tasks
        }
        state = algorithm.tell(state, Phase.EVALUATE, Replies(answers))
    return chosen, state


@pytest.mark.parametrize("failed", [(), (11, 20, 25)])
@pytest.mark.parametrize("name", [n for n in METHODS if n != "rand_mo"])
def test_a_replay_evaluates_what_the_algorithm_does_with_the_table_for_a_cube(name, failed, monkeypatch):
    setting, method = ReplaySetting(table(failed=failed), SPACE, 1, 3), METHODS[name]
    chosen, state = strategy(setting, monkeypatch, method=method.name, alpha=method.alpha)
    (replayed,) = replay([ReplayRun(setting, method, START, 5, ("a", "b"))], 12)
    assert replayed.tolist() == chosen
    assert len(set(chosen)) == 12
    ours = setting.state(chosen)
    np.testing.assert_array_equal(ours.losses(), state.losses())
    assert ours.front() == state.front()
    for criterion in ("own", "mean", "max", "guarded"):
        best = rfms_state.shipped(state, criterion, method)
        assert rfms_state.shipped(ours, criterion, method) == best
        assert chosen[best] not in failed
    done = np.array([i for i in chosen if i not in failed])
    told = rfms_replay.seen(setting, done)
    for criterion, ship in (("mean", "mean"), ("max", "max"), ("guarded max", "guarded")):
        best = rfms_state.shipped(state, ship, method)
        assert chosen[best] == done[int(np.argmin(CRITERIA[criterion](told)))]


def test_where_one_site_is_beyond_help_the_guard_falls_back_on_the_mean():
    found = table()
    found.wrong[:, 0] = 0.6 * found.rows[0]
    found.wrong[4, 0] = 0.7 * found.rows[0]  # worse for site 0, best for all others
    found.wrong[4, 1:] = found.fold_losses[4] = 0.0
    setting, taken = ReplaySetting(found, SPACE, 1, 3), [2, 4, 9]
    state = setting.state(taken)
    shipped = {s: rfms_state.shipped(state, s, METHODS["fmo"]) for s in ("max", "guarded", "mean")}
    assert shipped["guarded"] == shipped["mean"] == 1
    assert shipped["max"] != 1
    assert int(np.argmin(CRITERIA["guarded max"](rfms_replay.seen(setting, np.array(taken))))) == 1


def test_volumes_and_losses_are_those_of_the_configurations_by_hand():
    setting, taken = ReplaySetting(table(2), SPACE, 1, 3), np.array([4, 9, 15, 22, 28])
    found = setting.table
    outbag = found.wrong[taken][:, :, 1].sum(axis=2)
    rows = found.rows[:, 1].sum(axis=1)
    whole = found.wrong[taken][:, 3].sum(axis=(1, 2)) / found.rows[3].sum()
    by_hand = np.column_stack(
        [outbag[:, 1] / rows[1], (outbag[:, 0] + outbag[:, 2]) / (rows[0] + rows[2]), whole]
    )
    np.testing.assert_allclose(rfms_replay.final_losses(setting, taken), by_hand)
    best = int(np.argmin(found.local[taken]))
    paper, fair = rfms_replay.dominated(setting, METHODS["lso"], taken)
    assert paper == pytest.approx(np.prod(1 - by_hand[best]))
    assert fair >= paper - 1e-12
    sets, same = rfms_replay.dominated(setting, METHODS["fmo"], taken)
    assert sets == same == pytest.approx(fair)
    own, losses = rfms_replay.chosen_losses(setting, METHODS["lso"], taken)
    by_name = dict(zip(CHOICES, losses, strict=True))
    assert own == by_name["local"] == whole[best]
    assert by_name[HINDSIGHT] == whole.min()
    assert by_name["any"] == pytest.approx(whole.mean())


def test_criteria_are_those_of_a_case_worked_by_hand():
    seen = ServerView(
        np.array([[0.0], [0.5], [1.0]]),
        local=np.array([0.10, 0.20, 0.30]),
        curators=np.array([[0.50, 0.30], [0.40, 0.32], [0.33, 0.31]]),
        balanced=np.array([[0.5, 0.4], [0.1, 0.1], [0.5, 0.5]]),
        rows=np.array([100.0, 50.0, 150.0]),
    )
    np.testing.assert_allclose(seen.remote, [0.35, 0.34, 0.315])
    np.testing.assert_allclose(CRITERIA["rows"](seen), [0.2667, 0.2933, 0.31], atol=1e-4)
    np.testing.assert_allclose(CRITERIA["regret"](seen), [0.17, 0.10, 0.20])
    np.testing.assert_allclose(CRITERIA["worst two"](seen), [0.40, 0.36, 0.32])
    chosen = {name: int(np.argmin(criterion(seen))) for name, criterion in CRITERIA.items()}
    assert (chosen["mean"], chosen["max"], chosen["local"], chosen["remote"]) == (0, 2, 0, 2)
    assert chosen["balanced mean"] == 1
    assert chosen["guarded max"] == 2
    hopeless = replace(seen, curators=seen.curators + 0.3)  # no configuration is below a half everywhere
    assert int(np.argmin(CRITERIA["guarded max"](hopeless))) == 0
    # within a standard error of the best mean (.225 + .024) is the first alone
    assert CRITERIA["one s.e., max"](seen).tolist() == [0.5, np.inf, np.inf]


def test_shrinking_brings_noisy_losses_closer_to_the_truth():
    rng = np.random.default_rng(1)
    x = rng.random((60, 1))
    truth = 0.3 + 0.2 * np.square(x[:, 0] - 0.4)
    noisy = truth + 0.05 * rng.standard_normal(60)
    assert np.mean((shrunken(x, noisy) - truth) ** 2) < 0.3 * np.mean((noisy - truth) ** 2)
    np.testing.assert_array_equal(shrunken(x, np.full(60, 0.5)), np.full(60, 0.5))


def test_a_table_is_measured_for_all_methods_and_criteria(monkeypatch):
    key = Key("breast-cancer-5sites", 0, 1, {"learner": "elastic-net"})
    settings = [ReplaySetting(table(2), SPACE, 1, box) for box in (0, 2, 3)]
    monkeypatch.setattr(rfms_replay, "settings_of", lambda *_: settings)
    found = rfms_replay.measure(key, "", 6, Size(5, 8, NUM_CONFIGS))
    for name in METHODS:
        assert found[f"{name}/volume, paper"].shape == found[f"{name}/shipped loss"].shape == (6,)
    first, other = (found[f"{name}/volume, paper"] for name in ("lso", "fmo"))
    ties = 0.5 * (first == other)
    assert found["lso/paper: wins over fmo"] == pytest.approx(((first > other) + ties).mean())
    assert {f"{name}/loss" for name in CHOICES} <= set(found)
    assert found["mean/loss"].shape == (18,), "of the three methods that choose by the mean"
    drawn = rfms_replay.draw(key, "", Size(5, 8, NUM_CONFIGS))
    assert drawn["mean/loss"].shape == (3 * rfms_replay.NUM_DRAWS,)


# -- test_rfms_tables ----------------------------------------------------------------------------


def context(partition: int) -> ObjectiveContext:
    return ObjectiveContext(str(partition), partition, 0, 1, generator(0))


def computed(openbox: int, stop: int, **options: Any) -> LossTable:
    options = {"split": "drc", **options}
    key = Key("breast-cancer-5sites", 0, openbox, options)
    return LossTable(**tabulate(key, 0, stop, num_configs=64))


@pytest.mark.parametrize("learner", ["elastic-net", "svm", "forest"])
def test_a_table_holds_what_sites_would_answer_one_by_one(learner: Any) -> None:
    options = {"learner": learner, "class_weight": True, "max_trees": 101}
    found = computed(2, 1 if learner == "forest" else 3, **options)
    problem = BreastCancerSites(5, 0, openbox=2, lockbox=4, **options)  # type: ignore[arg-type]
    site = problem.site_objective()
    for i, point in enumerate(found.points):
        shipment = site.train(problem.space.decode(point), context(2))
        assert found.local[i] == pytest.approx(shipment.loss, abs=1e-12)
        answers: dict[str, list[Any]] = {
            rows: [site.judge(shipment.model.predict, rows, context(k)) for k in range(5)]
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
    whole = computed(1, 4)
    calls = iter(range(10_000))
    loss = rfms_tables._fold_loss

    def failing(*arguments: Any) -> float:
        if next(calls) == 0:
            raise ValueError("planted")
        return loss(*arguments)

    monkeypatch.setattr(rfms_tables, "_fold_loss", failing)
    found = computed(1, 4)
    assert np.isnan(found.local).tolist() == [True, False, False, False]
    assert np.isnan(found.inbag[0]).all()
    assert np.array_equal(found.lockbox[1:], whole.lockbox[1:])


def test_sites_of_one_class_get_no_table() -> None:
    assert [key.openbox for key in keys("breast-cancer-5sites", [7], {"split": "drc"})] == [0, 1, 2, 3]
    assert len({str(key) for key in keys("breast-cancer-5sites", [0, 1], {"split": "srs"})}) == 10
