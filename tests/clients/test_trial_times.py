"""When each trial was evaluated: in the study of agents that disclose their trials, and nowhere else."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Message

from fbo_flower import Float, SearchSpace
from fbo_flower.algorithms import make_algorithm
from fbo_flower.clients import client_app
from fbo_flower.clients.task_context import disclosed_times
from fbo_flower.simulation import Keep, simulate
from fbo_flower.simulation.grids import InProcessGrid
from fbo_flower.strategies import FTS
from fbo_flower.study import Study
from fbo_flower.trackers import Callback, StudyInfo

SPACE = SearchSpace({"x": Float(0, 1)})


def objective(config: dict[str, Any], context: Any) -> float:
    if config["x"] > 0.9:
        raise ValueError("too large")
    return float(config["x"])


def tune(disclose: str = "trials", **options: Any) -> Study:
    grid = InProcessGrid(client_app(objective, SPACE, seed=1, disclose=disclose), 2, **options)
    return FTS(seed=1, num_agents=2).start(grid, num_rounds=4).study


def test_every_disclosed_trial_has_its_times(tmp_path: Path) -> None:
    before = time.time()
    study = tune()
    after = time.time()
    keys = [(row["agent"], row["trial"]) for row in study.trials]
    assert [(row["agent"], row["trial"]) for row in study.times] == keys
    started, ended = study.times["started"], study.times["ended"]
    assert (before <= started).all()
    assert (started <= ended).all()
    assert (ended <= after + 1).all(), "two clocks measure an end"
    study.save(tmp_path)
    assert Study.load(tmp_path) == study
    assert "started" not in (tmp_path / "trials.csv").read_text()


class Recording(InProcessGrid):
    """Keeps the names of all arrays that agents send."""

    def pull_messages(self, message_ids: Any) -> list[Message]:
        replies = list(super().pull_messages(message_ids))
        for reply in replies:
            sent.update(reply.content.get("arrays", []))
        return replies


sent: set[str] = set()


@pytest.mark.parametrize("disclose", ["none", "incumbent", "trials"])
def test_times_leave_the_agent_with_its_trials_only(disclose: str) -> None:
    sent.clear()
    study = (
        FTS(seed=1, num_agents=2)
        .start(Recording(client_app(objective, SPACE, seed=1, disclose=disclose), 2), num_rounds=3)
        .study
    )
    assert ("disclosed.times" in sent) == (disclose == "trials")
    assert len(study.times) == len(study.trials)


def test_sites_that_train_have_times() -> None:
    options = {"method": "rand_mo", "num_trials": 3, "num_initial": 2}
    study = simulate("breast-cancer-5sites", algorithm=make_algorithm("rfms", options), engine="inline")
    trained = study.times.where(agent=study.trials["agent"][0])
    assert (trained["ended"] > trained["started"]).all()
    assert len(study.times) == len(study.trials)


def test_a_resumed_study_keeps_the_times_of_before(tmp_path: Path) -> None:
    studies: list[Study] = []

    class Told(Callback):
        def on_finish(self, study: StudyInfo, result: Study) -> None:
            studies.append(result)

    def interrupt(progress: Any) -> None:
        if progress.server_round == 2:
            raise KeyboardInterrupt

    def run(*functions: Any) -> Study:
        return simulate(
            lambda config, data: config["x"],
            SPACE,
            agents=2,
            num_rounds=4,
            engine="inline",
            keep=Keep(journals=tmp_path, resume=not functions),
            callbacks=[Told(), *functions],
        )

    with pytest.raises(KeyboardInterrupt):
        run(interrupt)
    study = run()
    number = len(studies[0].times) // 2  # of each agent
    for agent in ("0", "1"):
        earlier = studies[0].times.where(agent=agent)
        later = study.times.where(agent=agent)
        np.testing.assert_array_equal(later["started"][:number], earlier["started"])
        assert len(later) == number + 2


@pytest.mark.parametrize("started", [-1.0, 1e12, float("nan")])
def test_a_clock_that_is_wrong_by_centuries_says_nothing(started: float) -> None:
    assert disclosed_times({0: (started, started)}, [0]) is None
