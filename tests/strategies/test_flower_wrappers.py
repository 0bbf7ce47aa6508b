"""Flower's loop, wrappers, mods and arguments around a strategy: each works, or one line says what to use."""

import flwr.client.mod as legacy_mods
import flwr.clientapp.mod as mods
import flwr.server.strategy as legacy
import numpy as np
import pytest
from federation import agents
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord
from flwr.clientapp import ClientApp
from flwr.server import Server, SimpleClientManager
from flwr.serverapp import strategy as flower

from fbo_flower import Float, SearchSpace, client_app
from fbo_flower.clients import TuningAgent, add_tuning, message_api_mod
from fbo_flower.errors import ConfigError, ObjectiveError
from fbo_flower.simulation.grids import InProcessGrid
from fbo_flower.strategies import FTS, STRATEGIES, RandomSearch

SPACE = SearchSpace({"x": Float(0.0, 1.0)})
SMALL = {"num_candidates": 64, "num_path_features": 16, "num_features": 8}


def objective(config, context):
    return -((config["x"] - 0.3) ** 2)


def grid(app=None):
    return InProcessGrid(app or client_app(objective, SPACE, seed=1, disclose="trials"), 2)


def refusal(act, match):
    with pytest.raises(ConfigError, match=match):
        act()


FIXED, ADAPTIVE = (0.1, 1.0, 2), (0.1, 100)


@pytest.mark.parametrize(("kind", "options"), [(FTS, FIXED), (RandomSearch, ADAPTIVE)])
@pytest.mark.parametrize("name", ["Server", "Client"])
def test_wrappers_for_differential_privacy_name_the_algorithm_that_has_it(kind, name, options):
    clipping = f"DifferentialPrivacy{name}Side{'Fixed' if options is FIXED else 'Adaptive'}Clipping"
    wrapped = getattr(flower, clipping)(kind(num_agents=2, seed=1), *options)
    refusal(lambda: wrapped.start(grid(), ArrayRecord(), num_rounds=2), f"{clipping}: .*algorithm dp-fts")
    older = getattr(legacy, clipping)(kind(num_agents=2, seed=1), *options)
    server = Server(client_manager=SimpleClientManager(), strategy=older)
    refusal(lambda: server.fit(1, 1.0), "message API, got the older .*main.*dp-fts")


def test_a_wrapper_that_changes_no_message_works():
    inner, app = RandomSearch(num_agents=2, seed=1), grid()
    hooks = flower.Strategy.__abstractmethods__
    logged = type("Logged", (flower.Strategy,), {name: staticmethod(getattr(inner, name)) for name in hooks})
    logged().start(app, ArrayRecord(), num_rounds=2)
    assert len(inner.finish(app).study.trials) == 2 * (3 + 1)


NOISE = {"clipping_norm": 1.0, "sensitivity": 1.0, "epsilon": 1.0, "delta": 1e-5}
PROTECTING = [
    mods.fixedclipping_mod, mods.adaptiveclipping_mod, mods.LocalDpMod(**NOISE),
    legacy_mods.fixedclipping_mod, legacy_mods.adaptiveclipping_mod, legacy_mods.LocalDpMod(**NOISE),
    legacy_mods.secagg_mod, legacy_mods.secaggplus_mod,
]  # fmt: skip


WHEREVER = pytest.mark.parametrize("where", ["alone", "added", "before", "after"])


def with_mod(where, mod):
    if where == "alone":
        return client_app(objective, SPACE, seed=1, disclose="trials", mods=[mod]), {}
    if where == "added":
        app = ClientApp(mods=[mod])
        add_tuning(app, objective, SPACE, seed=1, disclose="trials")
        return app, {"action": "tune"}
    chain = [mod, message_api_mod] if where == "before" else [message_api_mod, mod]
    return ClientApp(client_fn=lambda c: TuningAgent(objective, SPACE, c, seed=1).to_client(), mods=chain), {}


@WHEREVER
@pytest.mark.parametrize("mod", PROTECTING, ids=range(len(PROTECTING)))
def test_mods_that_protect_models_are_refused_at_registration(where, mod):
    app, settings = with_mod(where, mod)
    strategy = FTS(num_agents=2, seed=1, **SMALL, **settings)
    refusal(lambda: strategy.start(grid(app), num_rounds=2), "dp-fts for differential privacy.*secure_sums")


@WHEREVER
@pytest.mark.parametrize("mod", [mods.arrays_size_mod, mods.message_size_mod])
def test_mods_that_measure_work(where, mod, caplog):
    for kind, options in [(FTS, SMALL), (RandomSearch, {})]:
        app, settings = with_mod(where, mod)
        strategy = kind(num_agents=2, seed=1, **options, **settings)
        if (where, mod, kind) == ("after", mods.arrays_size_mod, RandomSearch):  # its messages have no arrays
            with pytest.raises(ObjectiveError, match="the log above"):
                strategy.start(grid(app), num_rounds=2)
            assert "mods: expected mods that read arrays" in caplog.text
            continue
        strategy.start(grid(app), num_rounds=2)
        assert strategy.study.rounds["replies"].sum() == strategy.study.rounds["tasks"].sum() > 0


REMEDIES = {
    "fraction_train": "pass fraction", "fraction_evaluate": "leave it out",
    "min_train_nodes": "pass num_agents",
    "min_available_clients": "pass num_agents",
    "initial_parameters": "pass initial_arrays to start",
    "evaluate_fn": "pass it to start", "train_metrics_aggr_fn": "leave it out",
}  # fmt: skip


@pytest.mark.parametrize("name", REMEDIES)
def test_arguments_of_fedavg_say_what_takes_their_place(name):
    refusal(lambda: FTS(num_agents=2, **{name: None}), f"{name}: .*got one of FedAvg; {REMEDIES[name]}")


ARRAYS = ArrayRecord({"layer.weight": Array(np.ones((2, 3)))})


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"initial_arrays": ARRAYS}, "initial_arrays: expected the arrays of an earlier result"),
        ({"initial_arrays": 25}, "initial_arrays: expected an ArrayRecord, got 25"),
        ({"evaluate_fn": 3}, r"evaluate_fn: expected evaluate_fn\(server_round, arrays\), got 3"),
        ({"evaluate_fn": lambda arrays: None}, "evaluate_fn: .*too many positional arguments"),
        ({"evaluate_fn": lambda number, arrays: 3.0}, "evaluate_fn: .*MetricRecord or None, got 3.0"),
        ({"grid": None}, "grid: expected Flower's Grid, got None"),
    ],
)
def test_arguments_of_start_that_cannot_be_used_say_so(arguments, match):
    refusal(lambda: FTS(num_agents=2, seed=1).start(**{"grid": grid(), "num_rounds": 1, **arguments}), match)


SECURE = {"lengthscale": "federated", "secure_sums": 3, "num_candidates": 32, "num_path_features": 16}
BOTH_LOOPS = pytest.mark.parametrize("start", [FTS.start, flower.Strategy.start], ids=["ours", "theirs"])


def fts(seed=3, **options):
    return FTS(num_agents=4, seed=seed, **(options or SMALL))


def test_both_loops_return_the_same_arrays_and_metrics():
    """Our loop understands the positional call of a Flower user."""
    ours, theirs = (
        start(fts(**SECURE), agents(4), ArrayRecord(), 4, 3600, ConfigRecord(), ConfigRecord(), None)
        for start in (FTS.start, flower.Strategy.start)
    )
    assert isinstance(ours, flower.Result)
    assert ours.train_metrics_clientapp == theirs.train_metrics_clientapp
    assert ours.evaluate_metrics_clientapp == theirs.evaluate_metrics_clientapp
    assert [m["evaluations"] for m in theirs.train_metrics_clientapp.values()] == [12, 4, 4, 4]
    assert theirs.train_metrics_clientapp[4]["best"] <= 1.0
    assert list(theirs.evaluate_metrics_clientapp) == [1], "the only sum, of the first round"
    assert theirs.evaluate_metrics_clientapp[1]["replies"] == 8
    arrays = [{n: a.numpy().tolist() for n, a in result.arrays.items()} for result in (ours, theirs)]
    assert arrays[0] == arrays[1]
    assert ours.arrays["weights"].shape == (4, 100)


@BOTH_LOOPS
def test_the_arrays_of_a_study_are_the_start_of_another(start):
    earlier = fts().start(agents(4), num_rounds=4)
    strategy = fts(4)
    start(strategy, agents(4), earlier.arrays, 2)
    assert len(strategy._rounds.run.server.state.messages) == 8, "4 of the earlier study, 4 of this one"


@BOTH_LOOPS
def test_evaluate_fn_is_called_before_the_first_round_and_after_each(start):
    seen = []

    def evaluate_fn(server_round, arrays):
        seen.append((server_round, sorted(arrays)))
        return MetricRecord({"number": server_round})

    result = start(fts(), agents(4), ArrayRecord(), 2, evaluate_fn=evaluate_fn)
    names = ["frequencies", "phases", "weights"]
    assert seen == [(0, []), (1, names), (2, names)]
    assert [m["number"] for m in result.evaluate_metrics_serverapp.values()] == [0, 1, 2]


def test_what_flower_passes_and_tuning_cannot_use_is_refused():
    with pytest.raises(ConfigError, match="train_config: expected none, got lr"):
        flower.Strategy.start(fts(), agents(4), ArrayRecord(), 2, train_config=ConfigRecord({"lr": 0.1}))
    model = ArrayRecord({"w": Array(np.zeros(3))})
    with pytest.raises(ConfigError, match="warm_start: expected an algorithm that keeps messages"):
        STRATEGIES["random"](num_agents=4, seed=3).start(agents(4), model, 2)
    with pytest.raises(ConfigError, match="expected a running study"):
        fts().finish(agents(4))
