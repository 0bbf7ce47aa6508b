"""The legacy API: `client_fn` with a NumPyClient, and `server_fn`."""

import numpy as np
from flwr import app, serverapp  # tuned
from flwr.client import NumPyClient
from flwr.clientapp import ClientApp
from flwr.common import ndarrays_to_parameters
from flwr.server import ServerAppComponents, ServerConfig
from flwr.server.strategy import FedAvg
from flwr.serverapp import ServerApp
from task import accuracy, fit, load_data, load_test

from fbo_flower import Float, Int, SearchSpace, tune_federation  # tuned
from fbo_flower.federated import LegacyClients, Run  # tuned

CONFIG = {"num-server-rounds": 8, "lr": 0.1, "local-epochs": 1}
SPACE = SearchSpace({"lr": Float(1e-3, 10, log=True), "local-epochs": Int(1, 5)})  # tuned


class Client(NumPyClient):
    def __init__(self, data):
        self.data = data

    def fit(self, parameters, config):
        x, y, _, _ = self.data
        return [fit(parameters[0], x, y, config["lr"], config["local-epochs"])], len(y), {}

    def evaluate(self, parameters, config):
        _, _, x, y = self.data
        score = accuracy(parameters[0], x, y)
        return 1.0 - score, len(y), {"accuracy": score}


def client_fn(context):
    return Client(load_data(context)).to_client()


client = ClientApp(client_fn=client_fn)


def server_fn(context):
    own = {name: context.run_config[name] for name in ("lr", "local-epochs")}
    strategy = FedAvg(
        initial_parameters=ndarrays_to_parameters([np.zeros((65, 10))]),
        on_fit_config_fn=lambda server_round: own,
        evaluate_fn=lambda server_round, arrays, config: print(accuracy(arrays[0], *load_test())),
    )
    config = ServerConfig(num_rounds=context.run_config["num-server-rounds"])
    return ServerAppComponents(strategy=strategy, config=config)


server = ServerApp(server_fn=server_fn)  # own
server = ServerApp()  # tuned


@server.main()  # tuned
def main(grid, context):  # tuned
    build = lambda c: Run(serverapp.strategy.FedAvg(), app.ArrayRecord([np.zeros((65, 10))]))  # noqa: E731  # tuned
    print(tune_federation(LegacyClients(grid), build, SPACE, rounds=8, budget=384))  # tuned
