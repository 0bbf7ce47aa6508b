"""A FedAvg server that tunes its own learning rate and the clients' hyperparameters, and then trains."""

from flwr.app import ArrayRecord, ConfigRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvgM

from fbo_flower import Float, Int, Ordinal, SearchSpace, tune_federation
from fbo_flower.federated import Clients, Judge, Keep, Run, Search
from tune_federation.task import new_model

app = ServerApp()
space = SearchSpace({
    "learning-rate": Float(1e-3, 10, log=True),
    "local-epochs": Int(1, 8),
    "batch-size": Ordinal([8, 16, 32, 64]),
    "server-learning-rate": Float(0.1, 2, log=True),
})  # fmt: skip


def build(config):
    strategy = FedAvgM(server_learning_rate=config["server-learning-rate"], min_available_nodes=2)
    return Run(strategy, ArrayRecord(new_model()))


@app.main()
def main(grid: Grid, context: Context) -> None:
    settings = context.run_config
    config = {name: settings[name] for name in space.names}
    if settings["budget"]:
        tuned = tune_federation(
            grid,
            build,
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
        config = tuned.best_config
    run = build(config)
    rounds, config = settings["rounds"], ConfigRecord(config)
    result = run.strategy.start(grid, run.initial_arrays, num_rounds=rounds, train_config=config)
    for server_round, metrics in result.evaluate_metrics_clientapp.items():
        print(f"round {server_round}: accuracy {metrics['accuracy']:.4f}")
