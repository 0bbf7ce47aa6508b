"""What agents compute together is what each computes alone, bit for bit."""

from __future__ import annotations

import dataclasses
from contextvars import ContextVar
from functools import partial

import greenlet
import numpy as np
import pytest

from fbo_flower.algorithms import requests
from fbo_flower.algorithms.requests import DrawPath, Failed, Fit, Request, compute, outside, side_by_side
from fbo_flower.errors import NumericalError
from fbo_flower.numerics.optim.functions import LinearFunction
from fbo_flower.numerics.optim.sobol import sobol
from fbo_flower.numerics.surrogates import gp, rff

HYPERPARAMETERS = gp.Hyperparameters("rbf", np.array([0.3, 0.2]), 1.3, 0.02)
FEATURES = rff.draw_features(30, 0.5, 2, np.random.default_rng(0))


def data(agent: int, n: int = 12) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng([7, agent])
    x = rng.random((n, 2))
    y = np.sin(9.0 * x[:, 0] + agent) + x[:, 1] + 0.1 * rng.standard_normal(n)
    return x, (y - y.mean()) / y.std()


def own(agent: int) -> gp.Hyperparameters:
    return dataclasses.replace(HYPERPARAMETERS, kernel="matern52" if agent % 2 else "rbf")


def fit(agent: int) -> Request:
    start = own(agent)
    return Fit(*data(agent, 5 + agent % 4), start.kernel, start if agent % 3 else None)


def draw_path(agent: int) -> Request:
    return DrawPath(*data(agent), own(agent), 40, 1.0, np.random.default_rng([1, agent]))


def maximise_message(agent: int) -> Request:
    weights = np.random.default_rng([2, agent]).standard_normal(30)
    function = LinearFunction(FEATURES, weights, 0.1 * agent)
    candidates = sobol(200, 2, np.random.default_rng([3, agent]))
    return requests.Maximise(function, candidates, np.arange(2), data(agent)[0], 0.03)


def draw_weights(agent: int) -> Request:
    return requests.DrawWeights(FEATURES, *data(agent), 0.01, np.random.default_rng([4, agent]))


def bits(result: object) -> bytes:
    """Return all numbers of a result as bytes."""
    if isinstance(result, tuple):
        return b"".join(map(bits, result))
    if dataclasses.is_dataclass(result):
        return b"".join(bits(getattr(result, field.name)) for field in dataclasses.fields(result))
    return result.encode() if isinstance(result, str) else np.asarray(result).tobytes()


@pytest.mark.parametrize("make", [fit, draw_path, draw_weights, maximise_message])
def test_results_do_not_depend_on_how_many_are_computed_together(make, monkeypatch) -> None:
    expected = [bits(compute(make(agent))) for agent in range(12)]
    for size in (5, 500):
        monkeypatch.setattr(Request, "most", size)
        found = side_by_side(partial(compute, make(agent)) for agent in range(12))
        assert [bits(result) for result in found] == expected


def test_hundreds_of_agents_with_long_histories_do_not_all_hold_their_matrices_at_once(monkeypatch) -> None:
    monkeypatch.setattr(requests, "TOGETHER", 3 * 2 * 12**2)  # two matrices of three agents each
    under_way, most = set(), []

    def steps(agent: int):
        under_way.add(agent)
        most.append(len(under_way))
        compute(Fit(*data(agent), "rbf", None))
        under_way.remove(agent)

    side_by_side(partial(steps, agent) for agent in range(8))
    assert max(most) == 4  # and that of the agent that waits for the next part


def test_only_the_agent_at_fault_fails() -> None:
    def poisoned(agent: int):
        request = maximise_message(agent)
        if agent in (3, 4):
            request = dataclasses.replace(request, function=LinearFunction(FEATURES, np.full(30, np.nan)))
        try:
            found = compute(request)
        except NumericalError:
            if agent == 3:
                raise
            found = None
        if agent == 1:
            raise ValueError("planted")
        return found

    results = side_by_side(partial(poisoned, agent) for agent in range(5))
    failed = {agent: result.error for agent, result in enumerate(results) if isinstance(result, Failed)}
    assert {agent: type(error) for agent, error in failed.items()} == {1: ValueError, 3: NumericalError}
    assert str(failed[1]) == "planted"
    assert [bits(results[a]) for a in (0, 2, 4)] == [bits(poisoned(a)) for a in (0, 2, 4)]


def test_without_greenlet_agents_take_turns_with_the_same_results(monkeypatch) -> None:
    together = [bits(result) for result in side_by_side(partial(several_fits, agent) for agent in range(5))]
    monkeypatch.setattr(requests, "greenlet", None)
    assert [bits(r) for r in side_by_side(partial(several_fits, agent) for agent in range(5))] == together
    failed, found = side_by_side([partial(int, "no number"), partial(int, "3")])
    assert isinstance(failed, Failed)
    assert found == 3


def several_fits(agent: int):
    first = compute(fit(agent))
    return first, compute(fit(agent + len(first.lengthscales)))


def test_what_is_not_ours_runs_outside_an_agents_greenlet_and_its_own_computations_are_its_own() -> None:
    known = ContextVar("known")
    known.set("the caller's")
    places, driver = [], greenlet.getcurrent()

    def objective(agent: int):
        assert greenlet.getcurrent() is driver
        if agent == 1:
            raise ValueError("planted")
        return compute(fit(agent))  # as a user's loop with an Optimizer does

    def work(agent: int):
        places.append(greenlet.getcurrent())
        assert known.get() == "the caller's"
        compute(fit(0))
        return outside(partial(objective, agent))

    found = side_by_side(partial(work, agent) for agent in range(3))
    assert driver not in places
    assert [bits(found[agent]) for agent in (0, 2)] == [bits(compute(fit(agent))) for agent in (0, 2)]
    assert str(found[1].error) == "planted"


@pytest.mark.parametrize("calls_outside", [False, True])
def test_an_interrupted_driver_lets_every_agent_clean_up(calls_outside: bool) -> None:
    cleaned = []

    def interrupt():
        raise KeyboardInterrupt

    def work(agent: int):
        try:
            compute(fit(agent))
            outside(interrupt) if calls_outside else interrupt()
        finally:
            cleaned.append(agent)

    with pytest.raises(KeyboardInterrupt):
        side_by_side(partial(work, agent) for agent in range(3))
    assert sorted(cleaned) == [0, 1, 2]
