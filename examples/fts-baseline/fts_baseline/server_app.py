"""The server: federated Thompson sampling, or what it is compared with."""

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fts_baseline.strategy import STRATEGIES

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    config = context.run_config
    strategy = STRATEGIES[config["algorithm"]](num_agents=config["num-agents"] or None, seed=config["seed"])
    study = strategy.start(grid, num_rounds=config["num-rounds"]).study
    if config["out"]:
        study.save(config["out"])
