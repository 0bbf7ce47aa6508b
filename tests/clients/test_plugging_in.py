"""Tuning beside what exists: apps that train with FedAvg, and apps with a `client_fn`."""

from __future__ import annotations

import importlib
import re
import sys
import tomllib
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
import pytest
from flower_runtime import ROOT
from flwr.app import ArrayRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from fbo_flower import Float, SearchSpace
from fbo_flower.clients import TuningAgent, add_tuning, client_app, message_api_mod
from fbo_flower.clients.app import agent_app
from fbo_flower.simulation.grids import InProcessGrid
from fbo_flower.strategies import FTS, FedPNE

SPACE = SearchSpace({"x": Float(0, 1)})


def objective(config: dict[str, Any], context: Any) -> float:
    return -((config["x"] - 0.3) ** 2) + 0.01 * float(context.rng.normal())


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], tuple[ModuleType, ModuleType, dict]]]:
    packages = []
    for module in ("clients.agent", "strategies.base"):  # the examples draw their seeds; tests repeat
        monkeypatch.setattr(f"fbo_flower.{module}.fresh_entropy", lambda: 5)

    def load(name: str) -> tuple[ModuleType, ModuleType, dict[str, Any]]:
        directory = ROOT / "examples" / name
        monkeypatch.syspath_prepend(str(directory))
        package = name.replace("-", "_")
        packages.append(package)
        client, server = (importlib.import_module(f"{package}.{side}_app") for side in ("client", "server"))
        pyproject = tomllib.loads((directory / "pyproject.toml").read_text())
        return client, server, pyproject["tool"]["flwr"]["app"]["config"]

    yield load
    for name in [name for name in sys.modules if name.split(".")[0] in packages]:
        del sys.modules[name]


def run_example(
    apps: tuple[ModuleType, ModuleType, dict[str, Any]],
    num_nodes: int,
    node_configs: dict[int, dict[str, Any]] | None = None,
    **changes: Any,
) -> InProcessGrid:
    client, server, defaults = apps
    config = {**defaults, **{key.replace("_", "-"): value for key, value in changes.items()}}
    grid = InProcessGrid(client.app, num_nodes, run_config=config, node_configs=node_configs)
    server.app(grid, Context(1, 0, {}, RecordDict(), config))
    return grid


# the Message API


def test_fedavg_trains_with_tuned_values_and_does_better(load: Any, capsys: Any) -> None:
    apps = load("tune-then-train")
    scores = []
    for rounds in (0, 8):
        grid = run_example(apps, 3, num_agents=3, tuning_rounds=rounds)
        out = capsys.readouterr().out
        scores.append([float(score) for score in re.findall(r"accuracy ([0-9.]+)", out)])
        assert len(scores[-1]) == 5
        tuned = [context.state.get("tuned") for context in grid.contexts.values()]
        assert [values is not None for values in tuned] == [rounds > 0] * 3
    assert scores[1][0] > scores[0][0] + 0.02
    assert scores[1][-1] > scores[0][-1]


def test_tuning_leaves_the_apps_own_functions_alone() -> None:
    app = ClientApp()
    own: list[str] = []

    @app.train()
    def train(message: Message, context: Context) -> Message:
        own.append(message.metadata.message_type)
        return Message(RecordDict({"arrays": message.content["arrays"]}), reply_to=message)

    add_tuning(app, objective, SPACE, seed=5, disclose="trials")
    grid = InProcessGrid(app, 2)
    study = FTS(num_agents=2, seed=5, action="tune").start(grid, num_rounds=3).study
    assert own == []
    content = RecordDict({"arrays": ArrayRecord([np.arange(3.0)])})
    (reply,) = grid.send_and_receive([Message(content, grid.get_node_ids()[0], "train", group_id="1")])
    assert own == ["train"]
    assert reply.content["arrays"].to_numpy_ndarrays()[0].tolist() == [0, 1, 2]
    plain = FTS(num_agents=2, seed=5).start(InProcessGrid(tuning_app(), 2), num_rounds=3).study
    assert study.trials == plain.trials


def tuning_app() -> ClientApp:
    return client_app(objective, SPACE, seed=5, disclose="trials")


def test_an_action_that_the_app_has_already_is_refused() -> None:
    app = tuning_app()
    add_tuning(app, objective, SPACE)
    with pytest.raises(ValueError, match="tune"):
        add_tuning(app, objective, SPACE)


# a client_fn


def client_fn_app(kind: type[TuningAgent] = TuningAgent) -> ClientApp:
    def client_fn(context: Context) -> Any:
        return kind(objective, SPACE, context, seed=5, disclose="trials").to_client()

    return ClientApp(client_fn=client_fn, mods=[message_api_mod])


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_client_fn_makes_the_trials_of_a_decorated_app() -> None:
    study = FTS(num_agents=3, seed=5).start(InProcessGrid(client_fn_app(), 3), num_rounds=4).study
    plain = FTS(num_agents=3, seed=5).start(InProcessGrid(tuning_app(), 3), num_rounds=4).study
    assert study.trials == plain.trials
    assert len(plain.trials) == 3 * 6


class Counting(TuningAgent):
    """An agent that notes which of Flower's methods were called."""

    calls: ClassVar[list[str]] = []

    def fit(self, parameters: Any, config: Any) -> Any:
        self.calls.append("fit")
        return super().fit(parameters, config)

    def evaluate(self, parameters: Any, config: Any) -> Any:
        self.calls.append("evaluate")
        return super().evaluate(parameters, config)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("app", ["decorated", "client_fn"])
def test_every_message_of_a_secure_sum_passes_fit_or_evaluate(app: str) -> None:
    Counting.calls.clear()
    decorated = agent_app(lambda context: Counting(objective, SPACE, context, seed=5, disclose="trials"))
    grid = InProcessGrid(decorated if app == "decorated" else client_fn_app(Counting), 3)
    FedPNE(num_agents=3, seed=5, budget=30, secure_sums=3).start(grid, num_rounds=2)
    assert Counting.calls == (["fit"] * 3 + ["evaluate"] * 6) * 2 + ["fit"] * 3  # the last: what was found


def test_an_agent_answers_in_a_notebook() -> None:
    asked: list[tuple[Any, Any]] = []

    class Noting(TuningAgent):
        def fit(self, parameters: Any, config: Any) -> Any:
            asked.append((parameters, config))
            return super().fit(parameters, config)

    app = agent_app(lambda context: Noting(objective, SPACE, context, seed=5, disclose="trials"))
    study = FTS(num_agents=1, seed=5).start(InProcessGrid(app, 1), num_rounds=3).study
    context = Context(1, 1001, {"partition-id": 0}, RecordDict(), {})
    agent = TuningAgent(objective, SPACE, context, seed=5, disclose="trials")
    best = [agent.fit(*task)[2]["disclosed.incumbent"] for task in asked]
    assert best[-1] == study.best["0"]["value"]
