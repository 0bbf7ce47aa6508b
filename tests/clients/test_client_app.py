"""What a study of `client_app` holds: losses as they are, known configurations, times, names of files."""

import json
import pickle
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import cloudpickle
import numpy as np
import pytest
from federation import agents
from flwr.app import Context, RecordDict

from fbo_flower import Float, SearchSpace
from fbo_flower.algorithms import make_algorithm
from fbo_flower.algorithms.aims import Aims
from fbo_flower.algorithms.records import AgentState, Phase, Report, Task, Trials
from fbo_flower.algorithms.run_task import TaskResult
from fbo_flower.cli.main import run
from fbo_flower.clients import TuningAgent, client_app, data_file, guards
from fbo_flower.clients.app import agent_app
from fbo_flower.clients.operator import Operator, names_of_files
from fbo_flower.errors import ConfigError
from fbo_flower.simulation.grids import Fault, InProcessGrid
from fbo_flower.strategies import FTS, RandomSearch
from fbo_flower.study import Study

SPACE = SearchSpace({"x": Float(0, 1)})


def loss(config, context):
    return 3.0 + (config["x"] - 0.3) ** 2


def gain(config, context):
    return -loss(config, context)


def tune(callbacks=(), **given):
    """Return a study of two agents; `given` are arguments of `agents`, and of `start`."""
    of_start = {n: given.pop(n) for n in ("journal", "resume") if n in given}
    grid = agents(2, loss, space=SPACE, minimize=True, **given)
    return FTS(seed=1, num_agents=2, callbacks=callbacks).start(grid, num_rounds=4, **of_start).study


# -- losses and known configurations -----------------------------------------------------------------


def test_the_agent_keeps_its_loss_as_it_is(tmp_path, capsys):
    answers = []
    tune(journals=tmp_path, on_finish=lambda answer, context: answers.append(answer))
    assert answers[0].minimize
    assert answers[0].value == pytest.approx(loss(answers[0].config or {}, None))
    assert run(["best", str(tmp_path), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert [(a.value, a.config) for a in answers] == [(p["value"], p["config"]) for p in printed]


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


def test_every_disclosed_trial_has_its_times_and_a_resumed_study_keeps_them(tmp_path):
    def interrupt(progress):
        if progress.server_round == 2:
            raise KeyboardInterrupt

    given = {"journals": tmp_path, "journal": tmp_path / "study.db"}
    before = time.time()
    with pytest.raises(KeyboardInterrupt):
        tune(callbacks=[interrupt], **given)
    between = time.time()
    study = tune(resume=True, **given)
    assert study.trials == tune().trials
    keys = [(row["agent"], row["trial"]) for row in study.trials]
    assert [(row["agent"], row["trial"]) for row in study.times] == keys
    started, ended = study.times["started"], study.times["ended"]
    assert (before <= started).all()
    assert (started <= ended).all()
    assert ((ended <= between) == (study.trials["round"] <= 2)).all()
    study.save(tmp_path / "saved")
    assert Study.load(tmp_path / "saved") == study
    assert "started" not in (tmp_path / "saved" / "trials.csv").read_text()


@pytest.mark.parametrize("started", [-1.0, 1e12, float("nan")])
def test_a_clock_that_is_wrong_by_centuries_says_nothing(started):
    outcome = Trials(np.zeros((1, 2)), np.ones(1), np.zeros(1, np.int64), times=np.full((1, 2), started))
    result = TaskResult(AgentState(SPACE, outcome), Report(0, 1), outcome)
    found = guards.disclosure_of("trials", make_algorithm("random", {}), Task(Phase.TRAIN, 1, 0, 1), result)
    assert found.trials is not None
    assert found.trials.times is None


# -- files and names ---------------------------------------------------------------------------------


def size_of_file(config, context):
    file = data_file(context)
    return 0.0 if file is None else float(file.read_text())


def best_of(files, **given):
    grid = agents(2, size_of_file, space=SPACE, run_config={"data": files}, **given)
    study = RandomSearch(seed=0, num_agents=2).start(grid, num_rounds=1).study
    return {agent: best["value"] for agent, best in study.best.items()}


def test_simulated_agents_are_named_after_their_files_unless_the_operator_names_them(tmp_path):
    files = [tmp_path / f"{name}.csv" for name in ("north", "south, old")]
    for number, file in enumerate(files):
        file.write_text(str(number))
    assert best_of(json.dumps(list(map(str, files)))) == {"north": 0.0, "south_ old": 1.0}
    same_file = json.dumps([str(files[1])] * 2)
    assert best_of(same_file, node_configs={0: {"agent": "mine"}}) == {"1": 1.0, "mine": 1.0}


@pytest.mark.parametrize("own", ["", "mnist", '"mnist"', "3", "{}", "[1]"])
def test_an_app_with_a_key_data_of_its_own_keeps_numbers_as_names(own):
    grid = agents(2, gain, space=SPACE, run_config={"data": own})
    assert list(RandomSearch(seed=0, num_agents=2).start(grid, num_rounds=1).study.best) == ["0", "1"]


@pytest.mark.parametrize(
    ("files", "names"),
    [
        (["data/a.csv", "data/a.txt"], ["a.csv", "a.txt"]),
        (["north/data.csv", "south/data.csv"], ["north/data", "south/data"]),
        (["x/1/a.csv", "y/1/a.csv", "y/1/b.csv"], ["x/1/a", "y/1/a", "y/1/b"]),
        (["a,b.csv", "a_b.csv"], ["0", "1"]),
        ([f"{'x' * 200}{end}.csv" for end in "ab"], [f"{'x' * 99}{end}" for end in "ab"]),
        ([], []),
    ],
)
def test_names_of_files_are_different_and_short(files, names):
    assert names_of_files(files) == names


@pytest.mark.parametrize(
    ("node_config", "actor", "disclose"),
    [
        ({"partition-id": 0}, "abc", "trials"),
        ({"partition-id": 0, "disclose": "none"}, "abc", "none"),
        ({"partition-id": 0, "max_epsilon": 1.0}, "abc", "none"),
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

    def make(context):
        made.append(TuningAgent(gain, SPACE, context, seed=1))
        return made[-1]

    def node(number=1, run_config=None, **node_config):
        return Context(1, number, {"agent": "a", **node_config}, RecordDict(), run_config or {})

    app, first, again = agent_app(make), node(), node()
    assert app.agent(first) is app.agent(first) is made[0]
    # on a device each message brings the state of its node anew
    assert app.agent(again)._context.state is again.state is not first.state
    assert made[0]._context.state is first.state
    assert len(made) == 1
    changed = [node(max_trials=3, journal="any"), node(run_config={"x": 1}), node(2), node()]
    for number, context in enumerate(changed, 2):
        app.agent(context)
        assert len(made) == number
    first.node_config["journal"] = "elsewhere"  # the object is the same
    assert app.agent(first) is made[5]
    peers = node(secure_peers="0" * 64, secure_sums=2, journal="any")  # or a file, read at each message
    assert app.agent(peers) is not app.agent(peers)
    assert not pickle.loads(cloudpickle.dumps(agent_app(mixed)))._agents


def test_in_several_threads_every_message_meets_the_agent_of_its_own_settings():
    """A SuperNode's threads share an app; an operator's settings change between messages."""

    class Yielding(dict):
        def __setitem__(self, key, value):
            super().__setitem__(key, value)
            time.sleep(1e-4)  # another thread goes on between storing and use

    app = client_app(loss, SPACE)
    app._agents = Yielding()

    def serve(node):
        for number in range(40):
            disclose = "none" if number % 3 else "trials"
            context = Context(1, node, {"partition-id": node, "disclose": disclose}, RecordDict(), {})
            agent = app.agent(context)
            assert (agent._operator.disclose, agent._context.state) == (disclose, context.state)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(serve, (1, 2, 2, 3)))
