"""Tuning beside what exists: apps that train with FedAvg, and apps with a `client_fn`."""

import importlib
import re
import sys
import tomllib
from typing import ClassVar

import numpy as np
import pytest
from federation import agents
from flower_runtime import ROOT
from flwr.app import ArrayRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from fbo_flower import Float, SearchSpace
from fbo_flower.clients import TuningAgent, add_tuning, message_api_mod
from fbo_flower.clients.app import agent_app
from fbo_flower.simulation.grids import InProcessGrid
from fbo_flower.strategies import FTS, FedPNE

SPACE = SearchSpace({"x": Float(0, 1)})


def objective(config, context):
    return -((config["x"] - 0.3) ** 2) + 0.01 * float(context.rng.normal())


def trials(app=None, **settings):
    """Return the trials of FTS over two agents of an app, or of the app that only tunes."""
    grid = agents(2, objective, space=SPACE, seed=5) if app is None else InProcessGrid(app, 2)
    return FTS(num_agents=2, seed=5, **settings).start(grid, num_rounds=3).study.trials


def test_fedavg_trains_with_tuned_values_and_does_better(monkeypatch, capsys):
    for module in ("clients.agent", "strategies.start_and_end"):  # the example draws its seeds; tests repeat
        monkeypatch.setattr(f"fbo_flower.{module}.fresh_entropy", lambda: 5)
    directory = ROOT / "examples" / "tune-then-train"
    monkeypatch.syspath_prepend(str(directory))
    client, server = (importlib.import_module(f"tune_then_train.{side}_app") for side in ("client", "server"))
    defaults = tomllib.loads((directory / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    scores = []
    for rounds in (0, 8):
        config = {**defaults, "num-agents": 3, "tuning-rounds": rounds}
        grid = InProcessGrid(client.app, 3, run_config=config)
        server.app(grid, Context(1, 0, {}, RecordDict(), config))
        scores.append([float(s) for s in re.findall(r"accuracy ([0-9.]+)", capsys.readouterr().out)])
        assert len(scores[-1]) == 5
        tuned = [context.state.get("tuned") for context in grid.contexts.values()]
        assert [values is not None for values in tuned] == [rounds > 0] * 3
    assert scores[1][0] > scores[0][0] + 0.02
    assert scores[1][-1] > scores[0][-1]
    for name in [name for name in sys.modules if name.startswith("tune_then_train")]:
        monkeypatch.delitem(sys.modules, name)


def test_tuning_leaves_the_apps_own_functions_alone():
    app = ClientApp()
    own = []

    @app.train()
    def train(message, context):
        own.append(message.metadata.message_type)
        return Message(RecordDict({"arrays": message.content["arrays"]}), reply_to=message)

    add_tuning(app, objective, SPACE, seed=5, disclose="trials")
    assert trials(app, action="tune") == trials()
    assert own == []
    grid = InProcessGrid(app, 2)
    content = RecordDict({"arrays": ArrayRecord([np.arange(3.0)])})
    (reply,) = grid.send_and_receive([Message(content, grid.get_node_ids()[0], "train", group_id="1")])
    assert own == ["train"]
    assert reply.content["arrays"].to_numpy_ndarrays()[0].tolist() == [0, 1, 2]


class Counting(TuningAgent):
    """An agent that notes which of Flower's methods were called."""

    calls: ClassVar[list[str]] = []

    def fit(self, parameters, config):
        self.calls.append("fit")
        return super().fit(parameters, config)

    def evaluate(self, parameters, config):
        self.calls.append("evaluate")
        return super().evaluate(parameters, config)


def decorated_app(kind):
    return agent_app(lambda context: kind(objective, SPACE, context, seed=5, disclose="trials"))


def client_fn_app(kind):
    def client_fn(context):
        return kind(objective, SPACE, context, seed=5, disclose="trials").to_client()

    return ClientApp(client_fn=client_fn, mods=[message_api_mod])


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_client_fn_makes_the_trials_of_a_decorated_app():
    assert trials(client_fn_app(TuningAgent)) == trials()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("app", [decorated_app, client_fn_app])
def test_every_message_of_a_secure_sum_passes_fit_or_evaluate(app):
    Counting.calls.clear()
    strategy = FedPNE(num_agents=3, seed=5, budget=30, secure_sums=3)
    strategy.start(InProcessGrid(app(Counting), 3), num_rounds=2)
    assert Counting.calls == (["fit"] * 3 + ["evaluate"] * 6) * 2 + ["fit"] * 3  # the last: what was found
