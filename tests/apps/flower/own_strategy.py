"""A strategy of the app's own: a rate that decays, and momentum on the server."""

from client_app import client  # noqa: F401
from flwr.app import ArrayRecord
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg
from task import train, zeros

from fbo_flower import Float, SearchSpace, tune_federation  # tuned
from fbo_flower.federated import Run  # tuned

CONFIG = {"num-server-rounds": 8, "lr": 0.1, "local-epochs": 1, "decay": 0.9, "momentum": 0.0}
SPACE = {"lr": Float(1e-3, 10, log=True), "decay": Float(0.5, 1), "momentum": Float(0, 0.95)}  # tuned
server = ServerApp()


class Decayed(FedAvg):
    """FedAvg that sends a smaller rate in every round, and goes on with a part of the last step."""

    def __init__(self, decay, momentum):
        super().__init__()
        self.decay, self.momentum, self.model, self.step = decay, momentum, None, 0.0

    def configure_train(self, server_round, arrays, config, grid):
        (self.model,) = arrays.to_numpy_ndarrays()
        config["lr"] *= self.decay ** (server_round - 1)
        return super().configure_train(server_round, arrays, config, grid)

    def aggregate_train(self, server_round, replies):
        arrays, metrics = super().aggregate_train(server_round, replies)
        self.step = arrays.to_numpy_ndarrays()[0] - self.model + self.momentum * self.step
        return ArrayRecord([self.model + self.step]), metrics


@server.main()
def main(grid, context):
    own = {"local-epochs": context.run_config["local-epochs"]}
    build = lambda c: Run(Decayed(c["decay"], c["momentum"]), zeros(), train_config=own)  # noqa: E731  # tuned
    tuned = tune_federation(grid, build, SearchSpace(SPACE), rounds=8, budget=384)  # tuned
    context.run_config.update(tuned.best_config)  # tuned
    train(Decayed(context.run_config["decay"], context.run_config["momentum"]), grid, context)
