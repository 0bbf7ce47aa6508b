"""SecAgg+: Flower's workflow and its mod. The mod and the workflow come back after the tuning."""

import numpy as np
from flwr import app, serverapp  # tuned
from flwr.client.mod import secaggplus_mod
from flwr.clientapp import ClientApp
from flwr.common import ndarrays_to_parameters
from flwr.server import LegacyContext, ServerConfig
from flwr.server.strategy import FedAvg
from flwr.server.workflow import DefaultWorkflow, SecAggPlusWorkflow
from flwr.serverapp import ServerApp
from legacy_client_fn import Client
from task import accuracy, load_data, load_test

from fbo_flower import Float, Int, SearchSpace, tune_federation  # tuned
from fbo_flower.federated import LegacyClients, Run  # tuned

CONFIG = {"num-server-rounds": 8, "lr": 0.1, "local-epochs": 1}
SPACE = SearchSpace({"lr": Float(1e-3, 10, log=True), "local-epochs": Int(1, 5)})  # tuned


def client_fn(context):
    return Client(load_data(context)).to_client()


client = ClientApp(client_fn=client_fn, mods=[secaggplus_mod])  # own
client = ClientApp(client_fn=client_fn)  # tuned
server = ServerApp()


@server.main()
def main(grid, context):
    build = lambda c: Run(serverapp.strategy.FedAvg(), app.ArrayRecord([np.zeros((65, 10))]))  # noqa: E731  # tuned
    return print(tune_federation(LegacyClients(grid), build, SPACE, rounds=8, budget=384))  # tuned
    own = {name: context.run_config[name] for name in ("lr", "local-epochs")}
    strategy = FedAvg(
        initial_parameters=ndarrays_to_parameters([np.zeros((65, 10))]),
        on_fit_config_fn=lambda server_round: own,
        evaluate_fn=lambda server_round, arrays, config: print(accuracy(arrays[0], *load_test())),
    )
    config = ServerConfig(num_rounds=context.run_config["num-server-rounds"])
    workflow = DefaultWorkflow(fit_workflow=SecAggPlusWorkflow(num_shares=6, reconstruction_threshold=4))
    workflow(grid, LegacyContext(context=context, config=config, strategy=strategy))
