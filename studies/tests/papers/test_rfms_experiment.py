"""Replays of RFMS: the algorithm itself on a table, and what is measured of them."""

from __future__ import annotations

import numpy as np
import pytest

from fbo_flower.algorithms.rfms import state as rfms_state
from fbo_flower.clients import ObjectiveContext, SiteObjective
from fbo_flower.errors import ObjectiveError
from fbo_flower.numerics.seeding import generator
from fbo_flower.simulation.problems import make_learner
from studies.papers.rfms import replay as rfms
from studies.papers.rfms.replay import METHODS, Key, LossTable, Setting, Size

SPACE = make_learner("elastic-net").space
NUM_CONFIGS, NUM_SITES = 30, 4
START = np.array([3, 11, 7, 20, 2])


def table(seed: int = 0, failed: tuple[int, ...] = ()) -> LossTable:
    """Losses that are smooth in the configuration, with ties, another optimum at each site."""
    rng = np.random.default_rng(seed)
    points = SPACE.snap(rng.random((NUM_CONFIGS, SPACE.dimension)))
    rows = rng.integers(16, 60, (NUM_SITES, 2)).astype(float)
    optima = rng.random((NUM_SITES, SPACE.dimension))
    rate = np.minimum(0.1 + np.square(points[:, None] - optima).sum(axis=2), 0.5)
    local = np.round(rate[:, 0] + 0.02 * rng.standard_normal(NUM_CONFIGS), 2)
    inbag, outbag = (np.round(rate * rows[:, bag]) / rows[:, bag] for bag in range(2))
    for losses in (local, inbag, outbag):
        losses[list(failed)] = np.nan
    return LossTable(points, local, inbag, outbag, rows)


@pytest.mark.parametrize(
    ("name", "failed"), [("lso", ()), ("fso 0.2", (11, 20)), ("fmo", (3, 25)), ("ehvi", (11,))]
)
def test_a_replay_proposes_what_the_algorithm_does_with_the_table_for_a_cube(name, failed, monkeypatch):
    setting, chosen = Setting(table(failed=failed), SPACE, 1, 3), START.tolist()
    points = setting.table.points

    def over_the_table(function, space, taken, num_candidates, min_distance, rng):
        free = [i for i in range(NUM_CONFIGS) if i not in chosen]
        return points[[free[int(np.argmax(function(space.features(points[free]))))]]]

    monkeypatch.setattr(rfms_state, "maximise", over_the_table)
    while len(chosen) < 12:
        rng = generator(5, "a", "b", len(chosen))
        point = METHODS[name].propose(setting.state(chosen), rng)
        chosen.append(int(np.flatnonzero((points == point).all(axis=1))[0]))
    assert setting.replay(METHODS[name], START, 12, 5, "a", "b").tolist() == chosen


def test_where_one_site_is_beyond_help_the_guard_falls_back_on_the_mean():
    found = table()
    found.inbag[:, 0] = 0.6
    found.inbag[4, 0] = 0.7  # worse for site 0, best for all others
    found.inbag[4, 1:] = found.local[4] = 0.0
    state = Setting(found, SPACE, 1, 3).state([2, 4, 9])
    shipped = {s: rfms_state.shipped(state, s, METHODS["fmo"]) for s in ("max", "guarded", "mean")}
    assert shipped["guarded"] == shipped["mean"] == 1
    assert shipped["max"] != 1
    found.inbag[9] = found.local[9] = 0.4
    assert rfms_state.shipped(Setting(found, SPACE, 1, 3).state([2, 4, 9]), "guarded", METHODS["fmo"]) == 2


def test_volumes_and_losses_are_those_of_the_configurations_by_hand():
    setting, taken = Setting(table(2), SPACE, 1, 3), np.array([4, 9, 15, 22, 28])
    found, rows = setting.table, setting.table.rows
    wrong = found.outbag[taken] * rows[:, 1]
    whole = (found.inbag[taken, 3] * rows[3, 0] + wrong[:, 3]) / rows[3].sum()
    remote = (wrong[:, 0] + wrong[:, 2]) / (rows[0, 1] + rows[2, 1])
    by_hand = np.column_stack([found.outbag[taken, 1], remote, whole])
    np.testing.assert_allclose(setting.final_losses(taken.tolist()), by_hand)
    best = int(np.argmin(found.local[taken]))
    (paper, fair), own, criteria = setting.outcome(METHODS["lso"], taken)
    assert paper == pytest.approx(np.prod(1 - by_hand[best]))
    assert fair >= paper - 1e-12
    assert own == criteria[list(rfms.CRITERIA).index("local")] == pytest.approx(whole[best])
    sets, _, _ = setting.outcome(METHODS["fmo"], taken)
    assert sets == pytest.approx([fair, fair])
    assert setting.outcome(METHODS["lso"], taken[:0])[0] == [0.0, 0.0]


def test_a_table_is_measured_for_all_methods_and_criteria():
    key, size = Key("breast-cancer-5sites", 0, 1, {"learner": "elastic-net"}), Size(5, 8, NUM_CONFIGS)
    settings = [Setting(table(2), SPACE, 1, box) for box in (0, 2, 3)]
    found = rfms.measure(settings, key, 6, size)
    for name in METHODS:
        assert found[f"{name}/volume, paper"].shape == found[f"{name}/shipped loss"].shape == (6,)
    first, other = (found[f"{name}/volume, paper"] for name in ("lso", "fmo"))
    wins = ((first > other) + 0.5 * (first == other)).mean()
    assert found["lso/paper: wins over fmo"] == pytest.approx(wins)
    assert found["mean/loss"].shape == (18,), "of the three methods that choose by the mean"


def test_a_table_holds_what_sites_answer_and_a_failed_configuration_is_not_a_number(monkeypatch):
    (key,) = rfms.keys("breast-cancer-5sites", [0], {"split": "drc", "learner": "elastic-net"}, [2])
    train, calls = SiteObjective.train, iter(range(100))

    def failing(self, config, context):
        if next(calls) == 0:
            raise ObjectiveError("planted")
        return train(self, config, context)

    monkeypatch.setattr(SiteObjective, "train", failing)
    monkeypatch.setattr(rfms, "CHUNK", 2)
    found = LossTable(**rfms.tabulate(key, 0, num_configs=64))
    assert np.isnan(found.local).tolist() == [True, False]
    assert np.isnan(found.whole[0]).all()
    problem, context = key.make(), ObjectiveContext("2", 2, 0, 1, generator(0))
    model = train(problem.site_objective(), problem.space.decode(found.points[1]), context).model
    for k in range(5):
        context = ObjectiveContext(str(k), k, 0, 1, generator(0))
        judged = problem.site_objective().judge(model.predict, "all", context)
        assert found.whole[1, k] == pytest.approx(judged.loss)


def test_sites_of_one_class_get_no_table():
    assert [key.openbox for key in rfms.keys("breast-cancer-5sites", [7], {"split": "drc"})] == [0, 1, 2, 3]
