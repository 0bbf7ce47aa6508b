"""`client_app(..., minimize=True, initial=[...])`: losses, and configurations to try first, in an app."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Context
from flwr.clientapp import ClientApp

from fbo_flower import Float, SearchSpace
from fbo_flower.cli.main import run
from fbo_flower.clients import OwnAnswer, TuningAgent, add_tuning, client_app
from fbo_flower.clients.app import agent_app
from fbo_flower.errors import ConfigError
from fbo_flower.simulation.grids import Fault, InProcessGrid
from fbo_flower.strategies import FTS, HCT, RandomSearch
from fbo_flower.study import Study

SPACE = SearchSpace({"x": Float(0, 1)})
KNOWN = [{"x": 0.75}, {"x": 0.25}]


def loss(config: dict[str, Any], context: Any) -> float:
    return 3.0 + (config["x"] - 0.3) ** 2


def gain(config: dict[str, Any], context: Any) -> float:
    return -loss(config, context)


def tune(app: ClientApp, num_rounds: int = 4, strategy: Any = FTS, **options: Any) -> Study:
    return strategy(seed=1, num_agents=2, **options).start(InProcessGrid(app, 2), num_rounds=num_rounds).study


def test_a_loss_gives_the_same_trials_as_its_gain_and_is_shown_as_it_is() -> None:
    minimised = tune(client_app(loss, SPACE, seed=1, disclose="trials", minimize=True))
    maximised = tune(client_app(gain, SPACE, seed=1, disclose="trials"))
    assert minimised.trials["config"].tolist() == maximised.trials["config"].tolist()
    np.testing.assert_array_equal(minimised.trials["value"], -maximised.trials["value"])
    assert minimised.any_minimizes
    assert not maximised.any_minimizes
    assert minimised.best["0"]["value"] == -maximised.best["0"]["value"]
    assert minimised.rounds["best"][-1] == min(best["value"] for best in minimised.best.values())


def test_the_agent_keeps_its_loss_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answers: list[OwnAnswer] = []
    app = client_app(
        loss, SPACE, seed=1, minimize=True, on_finish=lambda answer, context: answers.append(answer)
    )
    journal = {0: {"journal": str(tmp_path / "agent.db")}}
    FTS(seed=1, num_agents=1).start(InProcessGrid(app, 1, node_configs=journal), num_rounds=4)
    (answer,) = answers
    assert answer.minimize
    assert answer.value == pytest.approx(loss(answer.config or {}, None))
    assert run(["best", str(tmp_path / "agent.db"), "--json"]) == 0
    (printed,) = json.loads(capsys.readouterr().out)
    assert (printed["value"], printed["config"]) == (answer.value, answer.config)


def test_observations_from_before_the_study_are_losses_too() -> None:
    seen: dict[str, Any] = {str(i): (np.array([[0.1], [0.9]]), np.array([3.04, 3.36])) for i in range(2)}
    apps = [
        client_app(f, SPACE, seed=1, disclose="trials", prior=prior, minimize=f is loss)
        for f, prior in ((loss, seen), (gain, {agent: (x, -y) for agent, (x, y) in seen.items()}))
    ]
    minimised, maximised = map(tune, apps)
    assert minimised.trials["config"].tolist() == maximised.trials["config"].tolist()


def test_known_configurations_are_evaluated_first() -> None:
    app = ClientApp()
    add_tuning(app, loss, SPACE, seed=1, disclose="trials", minimize=True, initial=KNOWN)
    study = tune(app, num_initial=5, action="tune")
    for agent in ("0", "1"):
        trials = study.trials.where(agent=agent)
        assert trials["config"][:2].tolist() == KNOWN
        assert (trials["round"] == 1).sum() == 5
    without = tune(client_app(gain, SPACE, seed=1, disclose="trials"), num_initial=5)
    assert study.trials["config"][2:5].tolist() == without.trials["config"][2:5].tolist()


class RepeatableLoss:
    def __call__(self, config: dict[str, Any], context: Any) -> float:
        return loss(config, context)

    def repeated(self, config: dict[str, Any], context: Any, repeats: int) -> Any:
        return np.full(repeats, loss(config, context))


@pytest.mark.parametrize("objective", [loss, RepeatableLoss()])
def test_a_bandit_minimises_too(objective: Any) -> None:
    app = client_app(objective, SPACE, seed=1, disclose="trials", minimize=True)
    study = tune(app, None, HCT, budget=40)  # type: ignore[arg-type]
    assert study.trials["value"].min() >= 3.0
    assert study.best["0"]["value"] < 3.05


def test_a_resumed_study_shows_losses(tmp_path: Path) -> None:
    app = client_app(loss, SPACE, seed=1, disclose="trials", minimize=True)

    def interrupt(progress: Any) -> None:
        if progress.server_round == 2:
            raise KeyboardInterrupt

    grid = InProcessGrid(app, 2)
    with pytest.raises(KeyboardInterrupt):
        FTS(seed=1, num_agents=2, callbacks=[interrupt]).start(
            grid, num_rounds=4, journal=tmp_path / "study.db"
        )
    study = (
        FTS(seed=1, num_agents=2).start(grid, num_rounds=4, journal=tmp_path / "study.db", resume=True).study
    )
    assert study.trials == tune(app).trials
    assert study.any_minimizes


def mixed(context: Context) -> TuningAgent:
    minimize = context.node_config["partition-id"] == 1
    return TuningAgent(loss if minimize else gain, SPACE, context, seed=1, minimize=minimize)


def test_agents_that_differ_are_refused() -> None:
    with pytest.raises(ConfigError, match="minimize: expected the same at every agent"):
        tune(agent_app(mixed))


def test_a_late_agent_that_differs_does_not_take_part() -> None:
    strategy = RandomSearch(seed=1, num_agents=1)
    late = {1: Fault("down", rounds=[0])}
    study = strategy.start(InProcessGrid(agent_app(mixed), 2, faults=late), num_rounds=3).study
    assert study.settings["runs"][0]["num_agents"] == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"minimize": "yes"}, "minimize: expected True or False, got the text 'yes'"),
        ({"initial": {"x": 0.5}}, "initial: expected a list of configurations"),
        ({"initial": "x"}, "initial: expected a list of configurations"),
        ({"initial": [0.5]}, r"initial\[0\]: expected a dict, got 0.5"),
        ({"initial": [{"x": 0.5}, {"y": 1}]}, r"initial\[1\]: "),
    ],
)
def test_wrong_arguments_are_found_at_once(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        client_app(loss, SPACE, **change)
