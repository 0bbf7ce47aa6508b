"""Tuning beside what exists: FedAvg by the Message API, and deployments of the legacy API."""

from __future__ import annotations

import importlib
import re
import sys
import tomllib
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from flower_runtime import ROOT
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.server import ServerAppComponents, ServerConfig
from flwr.server.strategy import FedAvg
from flwr.serverapp import ServerApp

from fbo_flower import Float, SearchSpace
from fbo_flower.clients import TuningAgent, add_tuning, client_app
from fbo_flower.errors import ConfigError
from fbo_flower.simulation.grids import Fault, InProcessGrid
from fbo_flower.strategies import FTS, FedPNE, RandomSearch
from fbo_flower.strategies.legacy import LegacyGrid, legacy_strategy
from fbo_flower.study import Study

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
    study = FTS(num_agents=2, seed=5, action="tune").start(grid, 3)
    assert own == []
    content = RecordDict({"arrays": ArrayRecord([np.arange(3.0)])})
    (reply,) = grid.send_and_receive([Message(content, grid.get_node_ids()[0], "train", group_id="1")])
    assert own == ["train"]
    assert reply.content["arrays"].to_numpy_ndarrays()[0].tolist() == [0, 1, 2]
    plain = FTS(num_agents=2, seed=5).start(InProcessGrid(tuning_app(), 2), 3)
    assert study.trials == plain.trials


def tuning_app() -> ClientApp:
    return client_app(objective, SPACE, seed=5, disclose="trials")


def test_an_action_that_the_app_has_already_is_refused() -> None:
    app = tuning_app()
    add_tuning(app, objective, SPACE)
    with pytest.raises(ValueError, match="tune"):
        add_tuning(app, objective, SPACE)


# the legacy API


def legacy_app() -> ClientApp:
    def client_fn(context: Context) -> Any:
        return TuningAgent(objective, SPACE, context, seed=5, disclose="trials").to_client()

    return ClientApp(client_fn=client_fn)


def run_legacy(strategy: Any, num_rounds: int = 0, app: ClientApp | None = None, **settings: Any) -> None:
    def server_fn(context: Context) -> ServerAppComponents:
        return ServerAppComponents(strategy=strategy, config=ServerConfig(num_rounds=num_rounds))

    grid = InProcessGrid(app or legacy_app(), 3, **settings)
    ServerApp(server_fn=server_fn)(grid, Context(1, 0, {}, RecordDict(), {}))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_legacy_deployment_makes_the_trials_of_the_message_api() -> None:
    tuning = FTS(num_agents=3, seed=5)
    run_legacy(legacy_strategy(tuning, 4))
    assert tuning.study is not None
    plain = FTS(num_agents=3, seed=5).start(InProcessGrid(tuning_app(), 3), 4)
    assert tuning.study.trials == plain.trials
    assert len(plain.trials) == 3 * 6


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_legacy_deployment_adds_up_securely() -> None:
    settings: dict[str, Any] = {"num_agents": 3, "seed": 5, "budget": 30, "secure_sums": 3}
    tuning = FedPNE(**settings)
    run_legacy(legacy_strategy(tuning, 9))
    assert tuning.study is not None
    plain = FedPNE(**settings).start(InProcessGrid(tuning_app(), 3), 9)
    assert tuning.study.trials == plain.trials
    assert tuning.study.settings["runs"][0]["privacy"]["sums_made"] >= 3


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_legacy_deployment_goes_on_with_the_strategy_that_was_made_of_what_was_found() -> None:
    seen: list[object] = []

    class Mixed(TuningAgent):
        """A client that tunes, and trains what it is sent."""

        def fit(self, parameters: Any, config: Any) -> Any:
            if "learning-rate" not in config:
                return super().fit(parameters, config)
            seen.append(config["learning-rate"])
            return [parameters[0] + 1], 1, {}

    app = ClientApp(client_fn=lambda context: Mixed(objective, SPACE, context, disclose="trials").to_client())

    def then(study: Study) -> FedAvg:
        from flwr.common import ndarrays_to_parameters

        x = max(study.best.values(), key=lambda best: best["value"])["config"]["x"]
        return FedAvg(
            fraction_evaluate=0.0,
            initial_parameters=ndarrays_to_parameters([np.zeros(2)]),
            on_fit_config_fn=lambda server_round: {"learning-rate": x},
        )

    tuning = RandomSearch(num_agents=3, seed=5)
    run_legacy(legacy_strategy(tuning, 4, then=then), 2, app)
    assert len(seen) == 2 * 3
    assert tuning.study is not None
    assert set(seen) == {max(tuning.study.best.values(), key=lambda best: best["value"])["config"]["x"]}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("fault", ["raising", "malformed", "silent"])
def test_a_legacy_client_that_fails_costs_its_own_contribution(fault: Any) -> None:
    tuning = FTS(num_agents=3, seed=5, round_timeout=0.3)
    planted = Fault(fault, rounds=[2], change=lambda content: RecordDict({"x": ConfigRecord({"y": 1})}))
    run_legacy(legacy_strategy(tuning, 3), faults={1: planted})
    assert tuning.study is not None
    assert tuning.study.rounds["replies"].tolist() == [3, 2, 3]


def test_a_legacy_grid_shows_the_run_and_the_nodes_of_the_grid_within() -> None:
    within = InProcessGrid(legacy_app(), 2)
    grid = LegacyGrid(within)
    assert list(grid.get_node_ids()) == within.get_node_ids()
    assert grid.run.run_id == within.run.run_id
    query = grid.create_message(RecordDict({"config": ConfigRecord()}), "query", 1001, "0")
    (reply,) = grid.send_and_receive([query])
    assert reply.content["config"]["agent"] == "0"
    assert reply.content["config"]["digest"] == SPACE.digest


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_legacy_server_without_clients_says_so() -> None:
    class Manager:
        def wait_for(self, num_clients: int, timeout: int) -> bool:
            return False

        def all(self) -> dict[str, object]:
            return {}

    strategy: Any = legacy_strategy(FTS(), wait_seconds=0)
    with pytest.raises(ConfigError, match="expected clients of a ServerApp within 0 s, got 0"):
        strategy.initialize_parameters(Manager())


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_legacy_example_tunes_and_saves_a_study(load: Any, tmp_path: Any, capsys: Any) -> None:
    trials = {node: {"disclose": "trials"} for node in range(3)}
    run_example(load("legacy-app"), 3, trials, num_agents=3, num_rounds=3, out=str(tmp_path / "trials"))
    assert len(Study.load(tmp_path / "trials").trials) == 3 * 5
    assert "agent 2: 0." in capsys.readouterr().out
    run_example(load("legacy-app"), 3, num_agents=3, num_rounds=3, out=str(tmp_path / "none"))
    assert len(Study.load(tmp_path / "none").trials) == 0
