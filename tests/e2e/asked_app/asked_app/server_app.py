"""A server that saves what the agents disclose."""

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fbo_flower.strategies import FedEI

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    config = context.run_config
    strategy = FedEI(num_agents=config["num-agents"], seed=5)
    strategy.start(grid, num_rounds=config["num-rounds"]).study.save(config["out"])
