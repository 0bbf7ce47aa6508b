"""FedAvg of a PyTorch network, before and after the server tunes the training."""

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from fbo_flower import Float, Int, Ordinal, SearchSpace, tune_federation
from fbo_flower.federated import Clients, Judge, Keep, Run, Search
from torch_cifar.task import new_model

app = ServerApp()
space = SearchSpace({
    "learning-rate": Float(1e-3, 1, log=True),
    "momentum": Float(0, 0.95),
    "local-epochs": Int(1, 5),
    "batch-size": Ordinal([8, 16, 32, 64]),
})  # fmt: skip


def build_strategy(config):
    return FedAvg(min_available_nodes=2)  # all four hyperparameters are the clients'


@app.main()
def main(grid: Grid, context: Context) -> None:
    settings = context.run_config
    torch.manual_seed(settings["seed"])
    arrays = ArrayRecord(new_model(settings["dataset"]).state_dict())
    config = {name: settings[name] for name in space.names}
    if settings["budget"]:
        tuned = tune_federation(
            grid,
            lambda config: Run(build_strategy(config), arrays),
            space,
            metric="accuracy",
            rounds=settings["rounds"],
            budget=settings["budget"],
            search=Search(num_parallel=settings["num-parallel"]),
            judge=Judge(evaluate_on="all"),
            clients=Clients(settings["num-clients"] or None),
            seed=settings["seed"],
            keep=Keep(
                out=settings["out"] or None,
                journals=settings["journals"] or None,
                resume=bool(settings["journals"]),
                overwrite=True,
            ),
        )
        print(f"tuned: {tuned}")
        train("after", grid, arrays, tuned.best_config, settings["rounds"])
    train("before", grid, arrays, config, settings["rounds"])


def train(name, grid, arrays, config, rounds):
    """Train with the configuration; print the accuracy on rows that tuning never used."""
    result = build_strategy(config).start(grid, arrays, num_rounds=rounds, train_config=ConfigRecord(config))
    for server_round, metrics in result.evaluate_metrics_clientapp.items():
        print(f"{name} tuning, round {server_round}: test accuracy {metrics['test-accuracy']:.4f}")
