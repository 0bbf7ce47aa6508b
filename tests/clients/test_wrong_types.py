"""An objective that returns no number, or that always fails, is evaluated as seldom as possible."""

import logging
import math
from pathlib import Path

import numpy as np
import pytest
from grouped import grouped

from fbo_flower import Float, SearchSpace
from fbo_flower.clients import client_app
from fbo_flower.errors import ObjectiveError
from fbo_flower.simulation import simulate
from fbo_flower.simulation.grids import InProcessGrid
from fbo_flower.strategies import RandomSearch

SPACE = SearchSpace({"x": Float(0.0, 1.0)})
WRONG = {
    "dict": {"accuracy": 0.9}, "nothing": None, "text": "0.9", "array of one": np.array([0.9]), "flag": True,
}  # fmt: skip


@pytest.fixture
def calls(tmp_path):
    return tmp_path / "calls"


def recorded(calls: Path, value: object, only: str = ""):
    """An objective that returns a value, and notes each call in a file: worker processes call it too."""

    def objective(config, data, context):
        with calls.open("a") as file:
            file.write(f"{context.agent}\n")
        return value if only in ("", context.agent) else config["x"]

    return objective


def count(calls: Path, agent: str = "") -> int:
    lines = calls.read_text().split()
    return sum(line == agent for line in lines) if agent else len(lines)


def tune(objective, **options):
    return simulate(objective, SPACE, num_rounds=9, **grouped(agents=3, **options))


@pytest.mark.parametrize("value", WRONG.values(), ids=WRONG)
def test_a_value_of_the_wrong_type_is_seen_once_per_agent(value, calls):
    objective = recorded(calls, value)
    with pytest.raises(ObjectiveError, match=r"expected one finite number, got .*; return a float"):
        tune(objective, algorithm="ei", engine="inline", minimize=value is None)
    assert count(calls) == 3


@pytest.mark.parametrize(
    "given",
    [
        *({"algorithm": name} for name in ("fts", "fed-ei", "hct", "co-kg", "pf-pne")),
        {"mode": "async"},
    ],
    ids=str,
)
def test_whatever_the_algorithm_and_the_mode(given, calls):
    with pytest.raises(ObjectiveError, match=r"got a str, '0\.9'"):
        tune(recorded(calls, "0.9"), **{"algorithm": "random", "engine": "inline", **given})
    assert count(calls) == 3


def test_in_worker_processes_those_under_way_are_the_last(calls):
    objective = recorded(calls, None)
    with pytest.raises(ObjectiveError, match="got None"):
        tune(objective, algorithm="random", engine="inline", num_parallel=2, options={"trials_per_round": 4})
    assert count(calls) <= 6


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_one_device_among_many_costs_only_itself(mode, calls):
    objective = recorded(calls, None, only="1")
    study = tune(objective, algorithm="random", engine="inline", mode=mode)
    assert set(study.trials["agent"]) == {"0", "2"}
    assert count(calls, "1") <= len(study.rounds), "once in a round at most"
    if mode == "sync":
        assert count(calls, "0") == 9 + 2


@pytest.mark.parametrize(("value", "mode"), [(math.nan, "sync"), (math.inf, "async")])
def test_if_all_evaluations_of_the_first_round_fail_there_is_no_second(value, mode, calls):
    objective = recorded(calls, value)
    with pytest.raises(ObjectiveError, match="all of 9 evaluations failed"):
        tune(objective, algorithm="random", engine="inline", mode=mode)
    assert count(calls) == 9, "an initial design of three"


def test_the_value_stays_at_an_agent_that_discloses_nothing(caplog):
    logging.getLogger("flwr").propagate = True
    app = client_app(lambda config, context: {"accuracy": 0.875}, SPACE, seed=0)
    with pytest.raises(ObjectiveError, match="got a dict; return a float") as caught:
        RandomSearch(num_agents=2, seed=0).start(InProcessGrid(app, 2), num_rounds=3)
    assert "0.875" not in str(caught.value)
    told = [r.getMessage() for r in caplog.records if "0.875" in r.getMessage()]
    assert told
    assert all(line.startswith("agent ") for line in told), "in the agents' own logs alone"
