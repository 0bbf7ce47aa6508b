"""Differential privacy on the clients, by Flower's `LocalDpMod`."""

import client_app
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import LocalDpMod
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg
from task import train, zeros

from fbo_flower import Float, Int, SearchSpace, tune_federation  # tuned
from fbo_flower.federated import Run  # tuned

CONFIG = {"num-server-rounds": 8, "lr": 0.1, "local-epochs": 1}
SPACE = SearchSpace({"lr": Float(1e-3, 10, log=True), "local-epochs": Int(1, 5)})  # tuned
client = ClientApp()
noise = LocalDpMod(clipping_norm=2.0, sensitivity=0.5, epsilon=50.0, delta=1e-5)
client.train(mods=[noise])(client_app.train)
client.evaluate()(client_app.evaluate)
server = ServerApp()


@server.main()
def main(grid, context):
    tuned = tune_federation(grid, lambda c: Run(FedAvg(), zeros()), SPACE, rounds=8, budget=384)  # tuned
    context.run_config.update(tuned.best_config)  # tuned
    train(FedAvg(), grid, context)
