"""FedProx, whose proximal term travels in the config."""

from client_app import client  # noqa: F401
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedProx
from task import train, zeros

from fbo_flower import Float, Int, SearchSpace, tune_federation  # tuned
from fbo_flower.federated import Run  # tuned

CONFIG = {"num-server-rounds": 8, "lr": 0.1, "local-epochs": 3, "proximal-mu": 0.1}
SPACE = {"lr": Float(1e-3, 10, log=True), "local-epochs": Int(1, 5), "proximal-mu": Float(0, 1)}  # tuned
server = ServerApp()


def strategy_of(config):
    return FedProx(fraction_train=0.67, proximal_mu=config["proximal-mu"])


@server.main()
def main(grid, context):
    build = lambda c: Run(strategy_of(c), zeros())  # noqa: E731  # tuned
    tuned = tune_federation(grid, build, SearchSpace(SPACE), rounds=8, budget=384)  # tuned
    context.run_config.update(tuned.best_config)  # tuned
    train(strategy_of(context.run_config), grid, context)
