"""SecAgg+: Flower's workflow and its mod. The mod and the workflow come back after the tuning."""

import numpy as np
from flwr import app, serverapp  # tuned
from flwr.client.mod import secaggplus_mod
from flwr.clientapp import ClientApp
from flwr.server import LegacyContext
from flwr.server.workflow import DefaultWorkflow, SecAggPlusWorkflow
from flwr.serverapp import ServerApp
from legacy_client_fn import client_fn, server_fn

from fbo_flower import Float, Int, SearchSpace, tune_federation  # tuned
from fbo_flower.federated import LegacyClients, Run  # tuned

CONFIG = {"num-server-rounds": 8, "lr": 0.1, "local-epochs": 1}
SPACE = SearchSpace({"lr": Float(1e-3, 10, log=True), "local-epochs": Int(1, 5)})  # tuned
client = ClientApp(client_fn=client_fn, mods=[secaggplus_mod])  # own
client = ClientApp(client_fn=client_fn)  # tuned
server = ServerApp()


@server.main()
def main(grid, context):
    build = lambda c: Run(serverapp.strategy.FedAvg(), app.ArrayRecord([np.zeros((65, 10))]))  # noqa: E731  # tuned
    return print(tune_federation(LegacyClients(grid), build, SPACE, rounds=8, budget=384))  # tuned
    made = server_fn(context)
    workflow = DefaultWorkflow(fit_workflow=SecAggPlusWorkflow(num_shares=6, reconstruction_threshold=4))
    workflow(grid, LegacyContext(context=context, config=made.config, strategy=made.strategy))
