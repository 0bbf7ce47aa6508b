"""A FedAvg server that calls `tune` before it trains."""

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from fbo_flower.strategies import FTS
from tune_then_train.task import new_model

app = ServerApp()


def tune(grid: Grid, config) -> ConfigRecord:
    """Tune, then return the average of the agents' best values."""
    strategy = FTS(num_agents=config["num-agents"] or None, seed=config["seed"], action="tune")
    best = [row["config"] for row in strategy.start(grid, config["tuning-rounds"]).best.values()]
    learning_rate = np.exp(np.mean([np.log(values["learning-rate"]) for values in best]))
    epochs = round(np.mean([values["local-epochs"] for values in best]))
    return ConfigRecord({"learning-rate": float(learning_rate), "local-epochs": epochs})


@app.main()
def main(grid: Grid, context: Context) -> None:
    config = context.run_config
    train_config = ConfigRecord({"learning-rate": config["learning-rate"], "local-epochs": 1})
    if config["tuning-rounds"]:
        train_config = tune(grid, config)
    print(f"Training with {dict(train_config)}")
    arrays = ArrayRecord(new_model())
    result = FedAvg().start(grid, arrays, num_rounds=config["num-rounds"], train_config=train_config)
    for server_round, metrics in result.evaluate_metrics_clientapp.items():
        print(f"round {server_round}: accuracy {metrics['accuracy']:.4f}")
