"""The run config rules everything: the clients' rate and penalty, the strategy, and its own rate."""

import numpy as np
from flwr.app import ArrayRecord
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAdagrad, FedAdam
from task import load_data, load_test, reply

from fbo_flower import Categorical, Float, Int, SearchSpace, tune_federation  # tuned
from fbo_flower.federated import Judge, Run, tuned_run_config  # tuned

CONFIG = {"num-server-rounds": 8, "lr": 0.1, "l2": 0.0, "local-epochs": 1, "adam": True, "server.eta": 0.1}
RATES = {"lr": Float(1e-3, 1, log=True), "server.eta": Float(1e-3, 1, log=True), "l2": Float(0, 0.1)}  # tuned
SPACE = SearchSpace({**RATES, "local-epochs": Int(1, 20), "adam": Categorical([True, False])})  # tuned
server = ServerApp()
client = ClientApp()  # own
client = ClientApp(mods=[tuned_run_config])  # tuned


def loss(weights, x, y):
    """Return the mean squared error in units of 100^2."""
    return float(np.mean((x @ weights[:-1] + weights[-1] - y / 100) ** 2))


@client.train()
def train(message, context):
    x, y, _, _ = load_data(context, "diabetes")
    x, (weights,) = np.column_stack([x, np.ones(len(x))]), message.content["arrays"].to_numpy_ndarrays()
    for _ in range(context.run_config["local-epochs"]):
        slope = x.T @ (x @ weights - y / 100) / len(y) + context.run_config["l2"] * weights
        weights = weights - context.run_config["lr"] * slope
    return reply(message, len(y), [weights])


@client.evaluate()
def evaluate(message, context):
    _, _, x, y = load_data(context, "diabetes")
    (weights,) = message.content["arrays"].to_numpy_ndarrays()
    return reply(message, len(y), loss=loss(weights, x, y))


def strategy_of(config):
    return (FedAdam if config["adam"] else FedAdagrad)(eta=config["server.eta"])


@server.main()
def main(grid, context):
    arrays, rounds = ArrayRecord([np.zeros(11)]), context.run_config["num-server-rounds"]
    build, judge = lambda c: Run(strategy_of(c), arrays), Judge(minimize=True)  # tuned
    tuned = tune_federation(grid, build, SPACE, "loss", rounds=8, budget=384, judge=judge)  # tuned
    context.run_config.update(tuned.best_config)  # tuned
    result = strategy_of(context.run_config).start(grid, arrays, rounds)
    print(loss(result.arrays.to_numpy_ndarrays()[0], *load_test("diabetes")))
