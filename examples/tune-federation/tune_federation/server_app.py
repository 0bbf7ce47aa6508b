"""A FedAvg server that tunes its own learning rate and the clients' hyperparameters, and then trains."""

from flwr.app import ArrayRecord, ConfigRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvgM

from fbo_flower import Float, Int, Ordinal, SearchSpace, tune_federation
from tune_federation.task import new_model

app = ServerApp()
space = SearchSpace({
    "learning-rate": Float(1e-3, 10, log=True),
    "local-epochs": Int(1, 8),
    "batch-size": Ordinal([8, 16, 32, 64]),
    "server-learning-rate": Float(0.1, 2, log=True),
})  # fmt: skip


def build_strategy(config):
    return FedAvgM(server_learning_rate=config["server-learning-rate"], min_available_nodes=2)


@app.main()
def main(grid: Grid, context: Context) -> None:
    settings = context.run_config
    config = {name: settings[name] for name in space.names}
    arrays = ArrayRecord(new_model())
    if settings["budget"]:
        tuned = tune_federation(
            grid,
            build_strategy,
            space,
            metric="accuracy",
            rounds=settings["rounds"],
            initial_arrays=arrays,
            budget=settings["budget"],
            num_parallel=settings["num-parallel"],
            evaluate_on="all",
            num_clients=settings["num-clients"] or None,
            seed=settings["seed"],
            journal=settings["journal"] or None,
            resume=bool(settings["journal"]),
            out=settings["out"] or None,
        )
        print(f"tuned: {tuned}")
        config = tuned.best_config
    strategy = build_strategy(config)
    result = strategy.start(grid, arrays, num_rounds=settings["rounds"], train_config=ConfigRecord(config))
    for server_round, metrics in result.evaluate_metrics_clientapp.items():
        print(f"round {server_round}: accuracy {metrics['accuracy']:.4f}")
