"""ei with limits and with several objectives: against random search, units, failures, batches, noise."""

from typing import Any

import numpy as np
import pytest
from contract import SQUARE

from fbo_flower import Float, SearchSpace
from fbo_flower.algorithms import ExpectedImprovement, Task, make_algorithm
from fbo_flower.algorithms.aims import Aims
from fbo_flower.algorithms.records import AgentState, Phase, Trials
from fbo_flower.algorithms.run_task import run_task
from fbo_flower.clients.own_answer import own_answer
from fbo_flower.numerics.seeding import generator
from fbo_flower.simulation import simulate

BRANIN = SearchSpace({"x": Float(-5, 10), "y": Float(0, 15)})
AIMS = Aims.of(False, {"gain": "max"}, {"cost": 0.9})


def branin(config, data):
    """Branin's function in a disc [Gardner2014, as in BoTorch's ConstrainedBranin]; the best is .398."""
    x, y = config["x"], config["y"]
    bent = y - 5.1 / (4 * np.pi**2) * x**2 + 5 / np.pi * x - 6
    loss = bent**2 + 10 * (1 - 1 / (8 * np.pi)) * np.cos(x) + 10
    return {"loss": float(loss), "outside": (x - 2.5) ** 2 + (y - 7.5) ** 2 - 50}


def test_it_finds_the_best_value_that_holds_the_limit_where_random_search_does_not():
    goals: dict[str, Any] = {"objectives": {"loss": "min"}, "limits": {"outside": 0.0}}
    for seed in range(2):
        found = {
            name: simulate(branin, BRANIN, 1, name, 18, seed=seed, engine="inline", **goals).best["0"]
            for name in ("random", "ei")
        }
        assert found["ei"]["value"] < 0.8 < found["random"]["value"]
        assert found["ei"]["outputs"]["outside"] <= 0


def outputs_at(points, noise=0.0):
    """Gain and minus the cost at points, `(n, 2)`: the best point with a cost of .9 is on the diagonal."""
    drawn = noise * np.random.default_rng(3).standard_normal((len(points), 2))
    return np.column_stack([points.sum(axis=1), -np.square(points).sum(axis=1)]) + drawn


def agent(points, outputs, aims=AIMS):
    history = Trials(points, outputs[:, 0], np.arange(len(points)), outputs=outputs)
    return AgentState(SQUARE, history, aims=aims)


def draws(purpose, *keys):
    return generator(7, purpose, *keys)


def proposed(state, number=1, at_once=1, algorithm=None):
    """Points of the next trials, `(number, 2)`, and the state after them."""
    asked: list[np.ndarray] = []

    def evaluate(query, trial):
        asked.append(query.points)
        found = outputs_at(query.points)
        trials = np.arange(trial, trial + len(found))
        return Trials(query.points, found[:, 0], trials, outputs=found)

    task = Task(Phase.TRAIN, 2, state.next_trial, number)
    algorithm = algorithm or ExpectedImprovement(trials_per_round=number)
    result = run_task(algorithm, task, state, evaluate, draws, at_once=at_once)
    return np.concatenate(asked), result.agent_state


START = generator(0, "points").random((6, 2))


def test_proposals_do_not_depend_on_the_units_of_objectives_and_limits():
    outputs, scale = outputs_at(START), np.array([1e3, 1e-2])
    expected, _ = proposed(agent(START, outputs))
    moved = Aims.of(False, {"gain": "max"}, {"cost": 0.9 * scale[1] - 5.0})
    found, _ = proposed(agent(START, outputs * scale + np.array([-70.0, 5.0]), moved))
    np.testing.assert_allclose(found, expected, atol=1e-5)
    elsewhere = Aims.of(False, {"gain": "max"}, {"cost": 0.3})
    assert np.abs(proposed(agent(START, outputs, elsewhere))[0] - expected).max() > 0.05


def test_a_failed_trial_counts_as_the_worst_in_every_output():
    outputs = outputs_at(START)
    broken, worst = outputs.copy(), outputs.copy()
    broken[2] = np.nan
    worst[2] = np.delete(outputs, 2, axis=0).min(axis=0)
    np.testing.assert_array_equal(proposed(agent(START, broken))[0], proposed(agent(START, worst))[0])
    nothing = agent(START, np.full((6, 2), np.nan))
    assert proposed(nothing, algorithm=ExpectedImprovement(num_initial=2))[0].shape == (1, 2)


def test_a_batch_holds_different_points_and_begins_as_a_single_step_does():
    one, _ = proposed(agent(START, outputs_at(START)))
    batch, after = proposed(agent(START, outputs_at(START)), 3, 3)
    np.testing.assert_array_equal(batch[:1], one)
    assert np.linalg.norm(batch[:, None] - batch[None], axis=2)[np.triu_indices(3, 1)].min() > 1e-3
    assert after.history.outputs is not None
    np.testing.assert_array_equal(after.history.outputs[6:], outputs_at(batch))  # no fantasy is left


def test_with_noise_the_answer_is_the_best_by_its_means_and_not_by_luck():
    points = generator(1, "points").random((60, 2))
    noisy = outputs_at(points, 0.25)
    algorithm = make_algorithm("ei", {"num_initial": 2})
    _, state = proposed(agent(points, noisy), algorithm=algorithm)
    answer = own_answer("1", "s", algorithm, state)
    assert np.isfinite(answer.mean)
    usable = state.usable_values()
    lucky = points[int(np.nanargmax(usable))]
    true = [outputs_at(state.space.encode(answer.config)[None])[0], outputs_at(lucky[None])[0]]
    assert -true[0][1] < 1.0
    assert true[0][0] > true[1][0] + 0.05, "the luckiest trial is worse"


def test_the_answer_without_a_feasible_trial_names_the_nearest():
    state = agent(START, outputs_at(START), Aims.of(False, {"gain": "max"}, {"cost": 0.001}))
    answer = own_answer("1", "s", make_algorithm("ei", {}), state)
    nearest = START[np.argmin(np.square(START).sum(axis=1))]
    assert answer.config is None
    np.testing.assert_allclose(state.space.encode(answer.nearest), nearest)
    assert str(answer).startswith("no configuration holds cost <= 0.001 after 6 evaluations; the nearest has")


@pytest.mark.parametrize("number", [2, 3])
def test_several_objectives_are_searched_along_their_front(number):
    """Distances from corners: every point of the triangle between them is on the front."""
    corners = np.array([[0.2, 0.2], [0.8, 0.2], [0.5, 0.8]])[:number]
    names = [f"loss {k}" for k in range(number)]

    def distances(config, data):
        point = np.array(list(config.values()))
        return dict(zip(names, np.square(corners - point).sum(axis=1).tolist(), strict=True))

    goals = {"objectives": dict.fromkeys(names, "min"), "engine": "inline"}
    volume = {
        name: simulate(distances, SQUARE, 1, name, 16, **goals).front(
            "0", reference=dict.fromkeys(names, 0.5)
        )
        for name in ("random", "ei")
    }
    assert volume["ei"].hypervolume > 1.05 * volume["random"].hypervolume
    assert len(volume["ei"].values) > len(volume["random"].values)


@pytest.mark.parametrize("y_transform", ["winsorise", "standardise"])
def test_the_reference_stands_in_the_units_of_the_models(y_transform):
    aims = Aims.of(False, {"gain": "max", "cost": "min"}, {"cost": 3.0}, {"cost": 1.5})
    outputs = np.vstack([outputs_at(START), [[-1e6, -2.0]]])  # a diverged gain
    state = agent(np.vstack([START, [[0.9, 0.9]]]), outputs, aims)
    _, ys, least, start = ExpectedImprovement(y_transform=y_transform).outputs(state)
    slope = (ys[1, 0] - ys[1, 1]) / (outputs[0, 1] - outputs[1, 1])
    assert start[1] == pytest.approx(ys[1, 0] + slope * (-1.5 - outputs[0, 1]))
    assert least[1] == pytest.approx(ys[1, 0] + slope * (-3.0 - outputs[0, 1]))
    assert np.isnan(start[0])
    flat = agent(
        START,
        np.column_stack([np.ones(6), outputs_at(START)[:, 1]]),
        Aims.of(False, {"gain": "max", "cost": "min"}, None, {"gain": 0.5}),
    )
    assert np.isnan(ExpectedImprovement().outputs(flat)[3]).all()


def test_what_is_worse_than_the_reference_is_not_searched():
    """Of a bent front only the middle counts: with the reference the search stays there."""

    def bent(config, data):
        angle, away = np.pi / 2 * config["x"], 1 + (config["y"] - 0.5) ** 2
        return {"a": float(away * np.cos(angle)), "b": float(away * np.sin(angle))}

    goals: dict[str, Any] = {"objectives": {"a": "min", "b": "min"}, "engine": "inline"}
    middle = {"a": 0.9, "b": 0.9}
    inside = []
    for reference in (None, middle):
        space = SearchSpace({"x": Float(0, 1), "y": Float(0, 1)})
        study = simulate(bent, space, 2, "ei", 12, reference=reference, **goals)
        rows = [row["outputs"] for row in study.trials if row["trial"] >= 3]
        inside.append(sum(max(row["a"], row["b"]) < 0.9 for row in rows) / len(rows))
        if reference is not None:
            assert study.front("0").reference.tolist() == [0.9, 0.9]
    assert inside[1] > inside[0] + 0.2
