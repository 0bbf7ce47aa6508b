"""Agents of `client_app`: how long they live, beside what they work, and what they limit."""

import json
import pickle
import sys
from types import SimpleNamespace
from typing import ClassVar

import cloudpickle
import numpy as np
import pytest
from agents import node as node_of
from agents import packed, task
from federation import agents
from flwr.app import ArrayRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from fbo_flower import Float, SearchSpace, strategies
from fbo_flower.algorithms import ExpectedImprovement
from fbo_flower.algorithms.aims import Aims
from fbo_flower.cli.main import run
from fbo_flower.clients import TuningAgent, add_tuning, client_app, message_api_mod
from fbo_flower.clients.app import agent_app
from fbo_flower.clients.operator import Operator
from fbo_flower.errors import ConfigError
from fbo_flower.simulation.grids import Fault, InProcessGrid
from fbo_flower.strategies import FTS, FedPNE, RandomSearch

SPACE = SearchSpace({"x": Float(0.0, 1.0), "y": Float(0.0, 1.0)})


def loss(config, context):
    return 3.0 + (config["x"] - 0.3) ** 2


def gain(config, context):
    return -loss(config, context)


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


# -- outputs and limits: what leaves an agent, what operators may change, its own answer -----------------

BOUND = 17.0625
GOALS = {"objectives": {"gain": "max"}, "limits": {"latency_ms": BOUND}}


def measured(config, context):
    return {"gain": 1 - (config["x"] - 0.7) ** 2, "latency_ms": 30 * config["x"] + 5 * config["y"]}


def tune(num_rounds=6, **given):
    grid = agents(2, measured, **{"space": SPACE, **GOALS, **given})
    return strategies.ExpectedImprovement(seed=1, num_agents=2).start(grid, num_rounds=num_rounds).study


def limited(context=None, objective=measured, disclose="trials", **goals):
    aims = Aims.of(**{**GOALS, **goals})
    return TuningAgent(objective, SPACE, context or node_of(), seed=1, disclose=disclose, aims=aims)


def test_an_operator_sets_bounds_of_the_device_and_no_table_holds_one(tmp_path):
    study = tune(12, node_configs={1: {"limits": "latency_ms <= 12"}})
    for name, bound in {"0": BOUND, "1": 12.0}.items():
        for row in study.trials.where(agent=name):
            assert row["feasible"] == (row["outputs"]["latency_ms"] <= bound)
        assert study.best[name]["outputs"]["latency_ms"] <= bound
    assert study.settings["runs"][0]["limits"] == {"latency_ms": "<="}
    study.save(tmp_path)
    assert not any(str(BOUND) in file.read_text() for file in tmp_path.iterdir())


@pytest.mark.parametrize("text", ["latency_ms < 3", "latency_ms", "latency_ms >= 3", "gain <= 1"])
def test_an_operator_cannot_set_another_limit(text):
    with pytest.raises(ConfigError, match="limits: expected"):
        limited(node_of(limits=text))


@pytest.mark.parametrize("disclose", ["none", "incumbent", "trials"])
def test_nothing_that_leaves_an_agent_holds_its_bound(disclose):
    def fails(config, context):
        return measured(config, context) | ({"latency_ms": np.inf} if context.trial == 1 else {})

    tuned = limited(objective=fails, disclose=disclose)
    replies = [tuned.answer(packed(ExpectedImprovement(), task(trial, 3))) for trial in (0, 3)]
    said = [repr(tuned.get_properties({})), *(repr(reply.config) for reply in replies)]
    assert not any(str(BOUND) in text for text in said)
    for reply in replies:
        assert any("outputs" in name for name in reply.arrays) == (disclose == "trials")
        assert any("feasible" in name for name in reply.arrays) == (disclose == "trials")
        for array in reply.arrays.values():
            assert not np.isin(np.abs(array.astype(float)), BOUND).any()


def test_a_bound_that_changes_within_a_study_holds_from_the_next_one_on(tmp_path):
    def points(study, name, *limits):
        found = []
        for trial, limit in enumerate(limits):
            asked = packed(ExpectedImprovement(num_initial=2), task(trial, 1), study=study)
            tuned = limited(node_of(tmp_path / f"{name}.db", limits=f"latency_ms <= {limit}"))
            found.append(tuned.answer(asked).arrays["disclosed.points"].tolist())
        return found

    assert points("s", "a", 9, 9, 9, 30, 30) == points("s", "b", 9, 9, 9, 9, 9)
    assert points("t", "a", *[9] * 5) != points("t", "b", *[30] * 5)


def test_an_output_that_an_operator_keeps_is_named_at_registration_and_excludes_disclosure():
    kept = node_of(private="latency_ms, gain")
    assert limited(kept, disclose="none").get_properties({})["private"] == ["latency_ms", "gain"]
    for disclose in ("incumbent", "trials"):
        with pytest.raises(
            ConfigError, match=r"disclose: expected 'none' together with private outputs \(la"
        ):
            limited(kept, disclose=disclose)
    with pytest.raises(ConfigError, match=r"private: expected some of several outputs \(gain, latency_ms\)"):
        limited(node_of(private="watts"), disclose="none")


def test_a_federation_shares_what_no_operator_keeps():
    kept = {1: {"private": "latency_ms"}}
    grid = agents(3, measured, space=SPACE, disclose="none", node_configs=kept, **GOALS)
    study = strategies.FedEI(seed=1, num_agents=3, num_candidates=64).start(grid, num_rounds=4).study
    (run,) = study.settings["runs"]
    assert run["options"]["shared_outputs"] == ["gain"]
    assert run["privacy"]["sums_made"] == 3, "of moments, first rows and a search; advice enters none"


def test_the_answer_and_the_command_show_the_numbers_of_the_best_and_the_front(tmp_path, capsys):
    def answers(name, num_rounds, **goals):
        found = []
        told = {"on_finish": lambda answer, context: found.append(answer), "journals": tmp_path / name}
        tune(num_rounds, **told, **goals)
        assert run(["best", str(tmp_path / name)]) == 0
        return found, capsys.readouterr().out

    held, printed = answers("limits", 5)
    assert {a.outputs["gain"] for a in held} == {a.value for a in held}
    assert f"latency_ms: {held[0].outputs['latency_ms']:.6g}" in printed
    assert run(["best", str(tmp_path / "limits"), "--json"]) == 0
    assert [entry["outputs"] for entry in json.loads(capsys.readouterr().out)] == [
        dict(a.outputs) for a in held
    ]

    _, printed = answers("none", 2, limits={"latency_ms": -1.0})
    assert "no configuration holds the limits; the nearest has" in printed
