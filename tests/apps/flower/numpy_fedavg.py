"""NumPy and FedAvg; clients read the config of the messages."""

from client_app import client  # noqa: F401
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg
from task import train, zeros

from fbo_flower import Float, Int, SearchSpace, tune_federation  # tuned
from fbo_flower.federated import Run  # tuned

CONFIG = {"num-server-rounds": 8, "lr": 0.1, "local-epochs": 1}
SPACE = SearchSpace({"lr": Float(1e-3, 10, log=True), "local-epochs": Int(1, 5)})  # tuned
server = ServerApp()


@server.main()
def main(grid, context):
    tuned = tune_federation(grid, lambda c: Run(FedAvg(), zeros()), SPACE, rounds=8, budget=384)  # tuned
    context.run_config.update(tuned.best_config)  # tuned
    train(FedAvg(), grid, context)
