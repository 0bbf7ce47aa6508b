"""A server that resumes from its journal, if it is given one."""

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fbo_flower.strategies import STRATEGIES

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    config = context.run_config
    strategy = STRATEGIES[config["algorithm"]](
        num_agents=config["num-agents"],
        seed=config["seed"],
        round_timeout=config["round-timeout"],
        num_initial=config["num-initial"],
    )
    journal = config["journal"] or None
    study = strategy.start(
        grid,
        num_rounds=config["num-rounds"],
        journal=journal,
        resume=journal is not None,
        mode=config["mode"],
    ).study
    if config["out"]:
        study.save(config["out"])
