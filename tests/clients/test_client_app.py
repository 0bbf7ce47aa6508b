"""What a study of `client_app` holds: losses as they are, known configurations, times, names of files."""

import pickle
import sys
from types import SimpleNamespace
from typing import ClassVar

import cloudpickle
import numpy as np
import pytest
from federation import agents
from flwr.app import ArrayRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from fbo_flower import Float, SearchSpace
from fbo_flower.algorithms.aims import Aims
from fbo_flower.clients import TuningAgent, add_tuning, client_app, message_api_mod
from fbo_flower.clients.app import agent_app
from fbo_flower.clients.operator import Operator
from fbo_flower.errors import ConfigError
from fbo_flower.simulation.grids import Fault, InProcessGrid
from fbo_flower.strategies import FTS, FedPNE, RandomSearch

SPACE = SearchSpace({"x": Float(0, 1)})


def loss(config, context):
    return 3.0 + (config["x"] - 0.3) ** 2


def gain(config, context):
    return -loss(config, context)


# -- losses and known configurations -----------------------------------------------------------------


def mixed(context):
    minimize = context.node_config["partition-id"] == 1
    return TuningAgent(loss if minimize else gain, SPACE, context, seed=1, aims=Aims.of(minimize))


def test_agents_that_differ_are_refused_and_a_late_one_does_not_take_part():
    with pytest.raises(
        ConfigError,
        match="objectives: expected the same at every agent, got value max at some and value min at agent 1;",
    ):
        FTS(num_agents=2, wait_seconds=0.2).start(InProcessGrid(agent_app(mixed), 2), num_rounds=4)
    late = {1: Fault("down", rounds=[0])}
    grid = InProcessGrid(agent_app(mixed), 2, faults=late)
    study = RandomSearch(seed=1, num_agents=1).start(grid, num_rounds=3).study
    assert study.settings["runs"][0]["num_agents"] == 1


def test_wrong_arguments_are_found_at_once():
    for name, wrong in {"max_trials": [3], "initial": [{"x": 0.5}, {"y": 1}]}.items():
        with pytest.raises(ConfigError, match=rf"^{name}.*: "):
            client_app(loss, SPACE, **{name: wrong})


# -- times -------------------------------------------------------------------------------------------


# -- files and names ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "names"),
    [
        ('["a/north.csv", "a/south, old.csv"]', ["north", "south_ old"]), ("mnist", ["0", "1"]),
        ("[1]", ["0", "1"]),
    ],
)  # fmt: skip
def test_simulated_agents_are_named_after_their_files_unless_the_key_is_the_apps_own(data, names):
    grid = agents(2, gain, space=SPACE, run_config={"data": data})
    assert list(RandomSearch(seed=0, num_agents=2).start(grid, num_rounds=1).study.best) == names


@pytest.mark.parametrize(
    ("node_config", "actor", "disclose"),
    [
        ({"partition-id": 0}, "abc", "trials"),
        ({"partition-id": 0, "disclose": "none"}, "abc", "none"),
        ({"agent": "north"}, "abc", "none"),
        ({"partition-id": 0}, None, "none"),
    ],
)
def test_only_a_node_in_an_actor_of_flowers_simulation_shows_its_trials(
    node_config, actor, disclose, monkeypatch
):
    ray = SimpleNamespace(
        is_initialized=lambda: True, get_runtime_context=lambda: SimpleNamespace(get_actor_id=lambda: actor)
    )
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.delitem(sys.modules, "flwr.simulation.ray_transport.ray_actor", raising=False)
    assert Operator.read(node_config, None).disclose == "none", "Ray alone is no simulation"
    monkeypatch.setitem(sys.modules, "flwr.simulation.ray_transport.ray_actor", ray)
    assert Operator.read(node_config, None).disclose == disclose


def test_an_app_keeps_the_agent_of_a_node_until_its_settings_change():
    made: list[TuningAgent] = []
    app = agent_app(lambda context: made.append(TuningAgent(gain, SPACE, context, seed=1)) or made[-1])

    def node(number=1, run_config=None, **node_config):
        return Context(1, number, {"agent": "a", **node_config}, RecordDict(), run_config or {})

    first, again = node(), node()
    assert app.agent(first) is app.agent(first) is made[0]
    # on a device each message brings the state of its node anew
    assert app.agent(again)._context.state is again.state is not first.state
    assert made[0]._context.state is first.state
    changed = [node(max_trials=3, journal="any"), node(run_config={"x": 1}), node(2), node()]
    for number, context in enumerate(changed, 2):
        app.agent(context)
        assert len(made) == number
    first.node_config["journal"] = "elsewhere"  # the object is the same
    assert app.agent(first) is made[5]
    peers = node(secure_peers="0" * 64, secure_sums=2, journal="any")  # or a file, read at each message
    assert app.agent(peers) is not app.agent(peers)
    assert not pickle.loads(cloudpickle.dumps(app))._agents


# -- beside other functions, and with a `client_fn` --------------------------------------------------------


def noisy(config, context):
    return -((config["x"] - 0.3) ** 2) + 0.01 * float(context.rng.normal())


def trials_of(app=None, **settings):
    """Return the trials of FTS over two agents of an app, or of the app that only tunes."""
    grid = agents(2, noisy, space=SPACE, seed=5) if app is None else InProcessGrid(app, 2)
    return FTS(num_agents=2, seed=5, **settings).start(grid, num_rounds=3).study.trials


def test_tuning_leaves_the_apps_own_functions_alone():
    app = ClientApp()
    own = []

    @app.train()
    def train(message, context):
        own.append(message.metadata.message_type)
        return Message(RecordDict({"arrays": message.content["arrays"]}), reply_to=message)

    add_tuning(app, noisy, SPACE, seed=5, disclose="trials")
    assert trials_of(app, action="tune") == trials_of()
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


def app_of(kind, client_fn):
    """Return an app of agents of this class, which is decorated or has a `client_fn`."""

    def agent(context):
        return kind(noisy, SPACE, context, seed=5, disclose="trials")

    if client_fn:
        return ClientApp(client_fn=lambda context: agent(context).to_client(), mods=[message_api_mod])
    return agent_app(agent)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("client_fn", [False, True])
def test_every_message_passes_fit_or_evaluate_also_of_a_client_fn(client_fn):
    assert trials_of(app_of(TuningAgent, client_fn)) == trials_of()
    Counting.calls.clear()
    strategy = FedPNE(num_agents=3, seed=5, budget=30, secure_sums=3)
    strategy.start(InProcessGrid(app_of(Counting, client_fn), 3), num_rounds=2)
    assert Counting.calls == (["fit"] * 3 + ["evaluate"] * 6) * 2 + ["fit"] * 3  # the last: what was found
