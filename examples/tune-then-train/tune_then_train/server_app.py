"""A FedAvg server that tunes before it trains; each node then trains with the values that it has found."""

from flwr.app import ArrayRecord, ConfigRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from fbo_flower.strategies import FTS
from tune_then_train.task import new_model

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    config = context.run_config
    train_config = ConfigRecord({"learning-rate": config["learning-rate"], "local-epochs": 1})
    if config["tuning-rounds"]:
        tuning = FTS(num_agents=config["num-agents"] or None, seed=config["seed"], action="tune")
        tuning.start(grid, num_rounds=config["tuning-rounds"])
    arrays = ArrayRecord(new_model())
    result = FedAvg().start(grid, arrays, num_rounds=config["num-rounds"], train_config=train_config)
    for server_round, metrics in result.evaluate_metrics_clientapp.items():
        print(f"round {server_round}: accuracy {metrics['accuracy']:.4f}")
