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
from fbo_flower.numerics.acquisition.guided import GuidedImprovement, Shared
from fbo_flower.numerics.optim.functions import LinearFunction
from fbo_flower.numerics.optim.sobol import sobol
from fbo_flower.numerics.surrogates import fitting, gp, rff
from fbo_flower.numerics.surrogates.fitting import Known
from fbo_flower.numerics.surrogates.trend import SharedRows

HYPERPARAMETERS = gp.Hyperparameters("rbf", np.array([0.3, 0.2]), 1.3, 0.02)
FEATURES = rff.draw_features(30, 0.5, 2, np.random.default_rng(0))


def data(agent: int, n: int = 12) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng([7, agent])
    x = rng.random((n, 2))
    y = np.sin(9.0 * x[:, 0] + agent) + x[:, 1] + 0.1 * rng.standard_normal(n)
    return x, (y - y.mean()) / y.std()


def fit(agent: int) -> Request:
    start = matching(HYPERPARAMETERS, agent)
    return Fit(*data(agent, 5 + agent % 4), start.kernel, start if agent % 3 else None)


def matching(start: gp.Hyperparameters, agent: int) -> gp.Hyperparameters:
    return dataclasses.replace(start, kernel="matern52" if agent % 2 else "rbf")


def shared(agent: int) -> Shared:
    """Return what an agent takes from 20 or 21 rows of others."""
    rng = np.random.default_rng([5, agent])
    x, scales = rng.random((20 + agent % 2, 2)), np.array([0.2, 0.4 + 0.01 * agent])
    return Shared(SharedRows(x, rng.standard_normal(len(x)), scales), 0.006 * agent, 0.1 + 0.01 * agent)


def fit_over_a_trend(agent: int) -> Request:
    if not agent % 5:  # it has no trend
        return Fit(*data(agent), "matern52", None, fitting.Priors(noise_centre=1e-4))
    x, y = data(agent, 5 + agent % 4)
    mean, covariance = shared(agent).prior(x)
    known = Known(covariance, np.array([0.3, 0.2 + 0.01 * agent]), 0.5 + 0.002 * agent, 1.0 - 0.006 * agent)
    start = matching(HYPERPARAMETERS, 1) if agent % 3 else None
    noisy = fitting.Priors(noise_centre=3e-2) if agent % 2 else None
    return Fit(x, y - mean, "matern52", start, fitting.Priors(noise_centre=1e-4), noisy, known)


def condition_over_a_trend(agent: int) -> Request:
    (x, y), h = data(agent), matching(HYPERPARAMETERS, agent)
    if not agent % 5:  # it has no trend
        return requests.Condition(x, y, h)
    mean, covariance = shared(agent).prior(x)
    return requests.Condition(x, y - mean, h, covariance)


def guided(agent: int) -> GuidedImprovement:
    found = compute(condition_over_a_trend(agent))
    return GuidedImprovement(found, 0.5, shared(agent) if agent % 5 else None)


def maximise_guided(agent: int) -> Request:
    return maximise(guided(agent), agent)


def maximise_where_some_columns_do_not_move(agent: int) -> Request:
    movable = np.random.default_rng([8, agent]).random((200, 2)) < 0.7
    return dataclasses.replace(maximise_guided(agent), movable=movable, max_iterations=9)


def evaluate(agent: int) -> Request:
    return requests.Evaluate(guided(agent), data(agent, 5)[0])


def draw_path(agent: int) -> Request:
    own = matching(HYPERPARAMETERS, agent)
    return DrawPath(*data(agent), own, 40, 1.0, np.random.default_rng([1, agent]))


def maximise_path(agent: int) -> Request:
    return maximise(compute(draw_path(agent)), agent)


def maximise_message(agent: int) -> Request:
    weights = np.random.default_rng([2, agent]).standard_normal(30)
    return maximise(LinearFunction(FEATURES, weights, 0.1 * agent), agent)


def maximise(function, agent: int) -> Request:
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


MAKERS = [
    fit, fit_over_a_trend, condition_over_a_trend, draw_path, draw_weights, evaluate,
    maximise_path, maximise_message, maximise_guided, maximise_where_some_columns_do_not_move,
]  # fmt: skip


@pytest.mark.parametrize("make", MAKERS)
def test_results_do_not_depend_on_how_many_are_computed_together(make, monkeypatch) -> None:
    count = 24
    expected = [bits(compute(make(agent))) for agent in range(count)]
    for size in (5, 500):
        monkeypatch.setattr(Request, "most", size)
        work = [partial(compute, make(agent)) for agent in range(count)]
        assert [bits(result) for result in side_by_side(work)] == expected


def test_agents_may_ask_for_different_things_and_end_at_different_times() -> None:
    def several(agent: int):
        total = 0.0
        for number in range(agent):
            found = compute((draw_path if number % 2 else fit)(agent))
            total += float(found.weights[0] if number % 2 else found.outputscale)
        return total

    assert side_by_side(partial(several, a) for a in range(6)) == [several(a) for a in range(6)]


def test_hundreds_of_agents_with_long_histories_do_not_all_hold_their_matrices_at_once(monkeypatch) -> None:
    monkeypatch.setattr(requests, "TOGETHER", 3 * 2 * 12**2)  # two matrices of three agents each
    under_way, most = set(), []

    def steps(agent: int):
        under_way.add(agent)
        most.append(len(under_way))
        found = compute(Fit(*data(agent), "rbf", None))
        under_way.remove(agent)
        return found

    results = side_by_side(partial(steps, agent) for agent in range(8))
    assert max(most) == 4  # and that of the agent that waits for the next part
    assert [bits(result) for result in results] == [bits(steps(agent)) for agent in range(8)]


def test_only_the_agent_at_fault_fails() -> None:
    def poisoned(agent: int):
        request = maximise_message(agent)
        if agent == 3:
            request = dataclasses.replace(request, function=LinearFunction(FEATURES, np.full(30, np.nan)))
        found = compute(request)
        if agent == 1:
            raise ValueError("planted")
        return found

    results = side_by_side(partial(poisoned, agent) for agent in range(5))
    failed = {agent: result.error for agent, result in enumerate(results) if isinstance(result, Failed)}
    assert {agent: type(error) for agent, error in failed.items()} == {1: ValueError, 3: NumericalError}
    assert str(failed[1]) == "planted"
    assert [bits(results[a]) for a in (0, 2, 4)] == [bits(poisoned(a)) for a in (0, 2, 4)]


def test_steps_see_the_error_of_their_request_and_can_clean_up_or_answer_it() -> None:
    cleaned = []

    def steps(catches: bool):
        try:
            compute(Fit(np.full((4, 2), np.nan), np.zeros(4), "rbf", None))
        except NumericalError:
            if not catches:
                raise
        finally:
            cleaned.append(True)
        return "caught"

    failed, caught = side_by_side([partial(steps, False), partial(steps, True)])
    assert isinstance(failed, Failed)
    with pytest.raises(NumericalError):
        steps(False)
    assert caught == steps(True) == "caught"
    assert cleaned == [True] * 4


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


@pytest.mark.parametrize("where", ["computation", "objective", "agent"])
def test_an_interrupted_driver_lets_every_agent_clean_up(where: str) -> None:
    cleaned = []

    def interrupt(*_):
        raise KeyboardInterrupt

    class Interrupting(Request):
        shape = ()
        compute = staticmethod(interrupt)

    last = {"computation": partial(compute, Interrupting()), "objective": partial(outside, interrupt)}

    def work(agent: int):
        try:
            compute(fit(agent))
            last.get(where, interrupt)()
        finally:
            cleaned.append(agent)

    with pytest.raises(KeyboardInterrupt):
        side_by_side(partial(work, agent) for agent in range(3))
    assert sorted(cleaned) == [0, 1, 2]


@pytest.mark.parametrize(
    ("numbers", "count", "expected"),
    [(1, 100, [64, 36]), (2**15, 9, [4, 4, 1]), (2**17, 3, [1, 1, 1]), (2**18, 2, [1, 1])],
)
def test_requests_that_are_stacked_hold_at_most_a_mebibyte(numbers: int, count: int, expected: list) -> None:
    class Sized(Request):
        shape, size, held = (), numbers, 0

        @staticmethod
        def compute(requests):
            return [len(requests)] * len(requests)

    found = side_by_side(partial(compute, Sized()) for _ in range(count))
    assert found == [n for n in expected for _ in range(n)]


@pytest.mark.parametrize("kind", [Fit, requests.Condition, DrawPath, requests.DrawWeights])
def test_fewer_requests_are_stacked_when_histories_are_long(kind: type) -> None:
    def request(n: int) -> Request:
        x, y = data(0, n)
        given = {
            Fit: ("rbf", None), requests.Condition: (HYPERPARAMETERS,), requests.DrawWeights: (0.01, None),
            DrawPath: (HYPERPARAMETERS, 40, 1.0, None),
        }  # fmt: skip
        return kind(*([FEATURES] if kind is requests.DrawWeights else []), x, y, *given[kind])

    assert [request(n).at_once for n in (12, 100, 400)] == [64, 2**17 // 100**2, 1]
