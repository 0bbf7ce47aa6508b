"""What an objective may return: a finite number, or a failed trial, and what a wrong type costs."""

import math
import os
import signal
from fractions import Fraction

import numpy as np
import pytest
from federation import log_lines
from grouped import grouped

from fbo_flower import Float, SearchSpace
from fbo_flower.clients import client_app
from fbo_flower.clients.objective import MAX_REASON, ObjectiveContext, evaluate
from fbo_flower.errors import ObjectiveError
from fbo_flower.simulation import simulate
from fbo_flower.simulation.grids import InProcessGrid
from fbo_flower.strategies import RandomSearch

SPACE = SearchSpace({"x": Float(0.0, 1.0)})
CONTEXT = ObjectiveContext("3", 3, 0, 1, np.random.default_rng(0))


def outcome(value):
    return evaluate(lambda config, context: value, {}, CONTEXT)


class Unspeakable(Exception):  # noqa: N818  # it is a value too
    def __str__(self):
        raise RuntimeError("no words")

    __repr__ = __str__


@pytest.mark.parametrize(
    "value",
    [
        None, "0.5", True, np.array(True), [1.0], {"loss": 1.0}, np.ones(1), 1j, object(), math.nan,
        -math.inf, np.array(np.inf), 10**400, np.array(10**400, dtype=object), Unspeakable(),
    ],
    ids=lambda v: type(v).__name__,
)  # fmt: skip
def test_anything_but_a_finite_number_is_an_objective_error(value):
    taken = outcome(Fraction(1, 4)) + outcome(np.float32(0.5)) + outcome(np.array(-0.0))
    assert repr(taken) == "(0.25, 0.5, -0.0)"
    with pytest.raises(ObjectiveError, match="finite number"):
        outcome(value)


@pytest.mark.parametrize(
    "error", [KeyError("a"), Unspeakable(), SystemExit(1), BaseException(), ValueError("x" * 10**6)]
)
def test_anything_raised_is_an_objective_error(error):
    def objective(config, context):
        raise error

    with pytest.raises(ObjectiveError, match=type(error).__name__) as caught:
        evaluate(objective, {}, CONTEXT)
    assert len(str(caught.value)) <= MAX_REASON


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
@pytest.mark.parametrize("resets", [False, True])
def test_a_signal_that_ends_the_process_is_no_failed_trial(resets):
    """Flower's handler removes itself before it raises SystemExit."""
    code = "def handle(*_):\n  if resets: signal(15, before)\n  raise SystemExit"
    names = {"__name__": "flwr.x" if resets else "own", "resets": resets, "signal": signal.signal}
    names["before"] = signal.getsignal(signal.SIGTERM)
    exec(code, names)
    signal.signal(signal.SIGTERM, names["handle"])
    try:
        with pytest.raises(SystemExit):
            evaluate(lambda config, context: signal.raise_signal(signal.SIGTERM), {}, CONTEXT)
    finally:
        signal.signal(signal.SIGTERM, names["before"])


# -- as seldom as possible ---------------------------------------------------------------------------


def tune(calls, value, only="", **options):
    """Return a study of agents, of which all or one measure a wrong value; `calls` gets who was called."""

    def objective(config, data, context):
        calls.append(context.agent)
        return value if only in ("", context.agent) else config["x"]

    given = {"agents": 3, "algorithm": "random", "engine": "inline", **options}
    return simulate(objective, SPACE, num_rounds=9, **grouped(**given))


@pytest.mark.parametrize(
    ("value", "given"),
    [
        ({"accuracy": 0.9}, {"algorithm": "ei"}), (None, {"algorithm": "ei", "minimize": True}),
        ("0.9", {"algorithm": "hct"}), (True, {"mode": "async"}),
    ],
    ids=str,
)  # fmt: skip
def test_a_value_of_the_wrong_type_is_seen_once_per_agent_whatever_the_algorithm_and_the_mode(value, given):
    calls = []
    with pytest.raises(ObjectiveError, match=r"expected one finite number, got .*; return a float"):
        tune(calls, value, **given)
    assert len(calls) == 3


def test_one_device_among_many_costs_only_itself():
    calls = []
    study = tune(calls, None, only="1")
    assert set(study.trials["agent"]) == {"0", "2"}
    assert calls.count("1") <= len(study.rounds), "once in a round at most"
    assert calls.count("0") == 9 + 2


def test_the_value_stays_at_an_agent_that_discloses_nothing():
    app = client_app(lambda config, context: {"accuracy": 0.875}, SPACE, seed=0)
    with log_lines() as lines, pytest.raises(ObjectiveError, match="got a dict; return a float") as caught:
        RandomSearch(num_agents=2, seed=0).start(InProcessGrid(app, 2), num_rounds=3)
    assert "0.875" not in str(caught.value)
    told = [line for line in lines if "0.875" in line]
    assert told
    assert all(line.startswith("agent ") for line in told), "in the agents' own logs alone"
