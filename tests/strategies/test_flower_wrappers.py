"""Flower's wrappers, mods and arguments around a strategy: each works, or one line says what to use."""

import flwr.client.mod as legacy_mods
import flwr.clientapp.mod as mods
import flwr.server.strategy as legacy
import numpy as np
import pytest
from flwr.app import Array, ArrayRecord
from flwr.clientapp import ClientApp
from flwr.server import Server, SimpleClientManager
from flwr.serverapp import strategy as flower

from fbo_flower import Float, SearchSpace, client_app
from fbo_flower.clients import TuningAgent, add_tuning, message_api_mod
from fbo_flower.errors import ConfigError, ObjectiveError
from fbo_flower.simulation.grids import InProcessGrid
from fbo_flower.strategies import FTS, RandomSearch

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


def test_mods_are_functions():
    refusal(lambda: client_app(objective, SPACE, mods=[3]), "mods: expected a list of Flower's mods")


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
        ({"evaluate_fn": 3}, r"evaluate_fn: expected evaluate_fn\(server_round, arrays\), got 3"),
        ({"evaluate_fn": lambda arrays: None}, "evaluate_fn: .*too many positional arguments"),
        ({"evaluate_fn": lambda number, arrays: 3.0}, "evaluate_fn: .*MetricRecord or None, got 3.0"),
        ({"grid": None}, "grid: expected Flower's Grid, got None"),
    ],
)
def test_arguments_of_start_that_cannot_be_used_say_so(arguments, match):
    refusal(lambda: FTS(num_agents=2, seed=1).start(**{"grid": grid(), "num_rounds": 1, **arguments}), match)
