"""Clients of a `client_fn` are tuned as those of the same app of the message API are."""

import numpy as np
import pytest
from flwr.app import ConfigRecord
from flwr.client import NumPyClient
from flwr.client.mod import secaggplus_mod
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import LocalDpMod, fixedclipping_mod
from flwr.server import strategy as legacy
from flwr.server.workflow import DefaultWorkflow, SecAggPlusWorkflow
from flwr.serverapp.strategy import FedAvg
from toy_federation import SPACE, fedavg, toy_app, toy_model, tune_flat

from fbo_flower.errors import ConfigError
from fbo_flower.federated import LegacyClients, Run
from fbo_flower.simulation.grids import InProcessGrid

ARGUMENTS = {"rounds": 4, "eta": 2, "num_trials": 5, "num_parallel": 2, "initial_arrays": toy_model()}
ARGUMENTS["number"] = 4


class ToyClient(NumPyClient):
    """The client of `toy_app` in the legacy API."""

    def __init__(self, node, number):
        self.centre = 1.0 + 0.1 * (node - (number - 1) / 2)

    def fit(self, parameters, config):
        moved = parameters[0] + config["learning-rate"] * (self.centre - parameters[0])
        return [moved], 10, {"note": "text", "val-loss": 0.5, "bit": True}

    def evaluate(self, parameters, config):
        loss = float((parameters[0][0] - self.centre) ** 2)
        return loss, 10, {"accuracy": 1.0 - loss}


def legacy_app(**given):
    def client_fn(context):
        node, number = (int(context.node_config[name]) for name in ("partition-id", "num-partitions"))
        return ToyClient(node, number).to_client()

    return ClientApp(client_fn=client_fn, **given)


def test_legacy_clients_give_the_trials_of_the_message_api_and_train_with_what_was_tuned():
    grid = LegacyClients(InProcessGrid(legacy_app(), 4))
    legacy = tune_flat(grid, fedavg, SPACE, **ARGUMENTS)
    modern = tune_flat(InProcessGrid(toy_app(), 4), fedavg, SPACE, **ARGUMENTS)
    assert (legacy.trials, legacy.curves) == (modern.trials, modern.curves)
    np.testing.assert_array_equal(legacy.best_arrays["w"].numpy(), modern.best_arrays["w"].numpy())
    by_loss = tune_flat(grid, fedavg, SPACE, "loss", minimize=True, **ARGUMENTS)
    assert by_loss.best_value < 0.05
    arrays, config = ARGUMENTS["initial_arrays"], ConfigRecord(by_loss.best_config)
    result = fedavg(by_loss.best_config).start(grid, arrays, num_rounds=2, train_config=config)
    assert list(result.arrays) == list(arrays)


SECAGG = "secaggplus_mod.*tune in a simulation without"
CLIPPING = r"clipping mods in @app.train\(mods=.*flwr.client.mod"


@pytest.mark.parametrize(
    ("app", "fraction", "words"),
    [
        (legacy_app(), 1.0, r"grid: expected LegacyClients\(grid\).*tune_federation\(Legacy"),
        (legacy_app(), 0.0, r"grid: expected LegacyClients\(grid\).*tune_federation\(Legacy"),
        (legacy_app(mods=[secaggplus_mod]), 1.0, SECAGG),
        (toy_app(mods=[secaggplus_mod]), 1.0, SECAGG),
        (toy_app(mods=[LocalDpMod(1.0, 1.0, 1.0, 1e-5)]), 1.0, CLIPPING),
        (toy_app(mods=[fixedclipping_mod]), 0.0, CLIPPING),
    ],
)
def test_mistakes_of_an_app_are_named_before_a_trial_counts_as_failed(app, fraction, words, tmp_path):
    def build(config):
        return FedAvg(fraction, min_available_nodes=1, min_train_nodes=0, min_evaluate_nodes=1)

    with pytest.raises(ConfigError, match=words):
        tune_flat(InProcessGrid(app, 4), build, SPACE, **ARGUMENTS, journals=tmp_path)
    mended = LegacyClients(InProcessGrid(legacy_app(), 4))
    tuned = tune_flat(mended, fedavg, SPACE, **ARGUMENTS, journals=tmp_path, resume=True)
    assert "failed" not in tuned.trials["state"].tolist()


@pytest.mark.parametrize("older", [SecAggPlusWorkflow(3, 2), DefaultWorkflow(), legacy.FedAvg()])
def test_a_workflow_is_no_strategy(older):
    with pytest.raises(ConfigError, match=r"strategy: expected .*SecAggPlusWorkflow cannot be tuned"):
        Run(older, toy_model())
