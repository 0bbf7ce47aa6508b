"""A server that resumes from its journal, if it is given one."""

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fbo_flower.strategies import STRATEGIES

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    config = context.run_config
    names, journal = ("num-agents", "seed", "round-timeout", "num-initial"), config["journal"] or None
    given = {name.replace("-", "_"): config[name] for name in names}
    kept = {"num_rounds": config["num-rounds"], "journal": journal, "resume": journal is not None}
    study = STRATEGIES[config["algorithm"]](**given).start(grid, mode=config["mode"], **kept).study
    if config["out"]:
        study.save(config["out"])
