"""The server: it runs federated Thompson sampling with the agents that connect."""

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fbo_flower.strategies import FTS

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    config = context.run_config
    strategy = FTS(num_agents=config["num-agents"], seed=0)
    study = strategy.start(grid, num_rounds=config["num-rounds"]).study
    for agent, best in study.best.items():  # of agents whose operators disclose their values
        print(f"agent {agent}: {best['value']:.3f} with {best['config']}")
    if config["out"]:
        study.save(config["out"])
