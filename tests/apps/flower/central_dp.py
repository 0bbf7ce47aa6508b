"""Differential privacy on the server: clipped updates, and noise in their mean."""

from client_app import client  # noqa: F401
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, FedAvg
from task import train, zeros

from fbo_flower import Float, Int, SearchSpace, tune_federation  # tuned
from fbo_flower.federated import Run  # tuned

CONFIG = {"num-server-rounds": 8, "lr": 0.1, "local-epochs": 1, "noise-multiplier": 0.2, "clipping-norm": 1.0}
RATES = {"lr": Float(1e-3, 10, log=True), "clipping-norm": Float(0.05, 20, log=True)}  # tuned
SPACE = SearchSpace({**RATES, "local-epochs": Int(1, 5)})  # tuned
server = ServerApp()


def strategy_of(noise, norm):
    return DifferentialPrivacyServerSideFixedClipping(FedAvg(), noise, norm, num_sampled_clients=6)


@server.main()
def main(grid, context):
    noise = context.run_config["noise-multiplier"]
    build = lambda c: Run(strategy_of(noise, c["clipping-norm"]), zeros())  # noqa: E731  # tuned
    tuned = tune_federation(grid, build, SPACE, rounds=8, budget=384)  # tuned
    context.run_config.update(tuned.best_config)  # tuned
    train(strategy_of(noise, context.run_config["clipping-norm"]), grid, context)
