"""The server of the bundled Flower app: `flwr run . --stream`.

Its settings are the keys of `[tool.flwr.app.config]` in `pyproject.toml`. With the same settings,
`fbo-flower simulate` gives the same trials.
"""

from logging import ERROR

from flwr.app import Context
from flwr.common.logger import log
from flwr.serverapp import Grid, ServerApp

from fbo_flower.app.config import AppConfig
from fbo_flower.app.results import results_of
from fbo_flower.errors import FBOError

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the algorithm and write the study; an error is logged as one line and ends the run."""
    try:
        config = AppConfig.read(context.run_config)
        with results_of(config, context.run_id) as save:
            strategy = config.strategy()
            try:
                strategy.start(grid, num_rounds=config.num_rounds, **config.how_to_start())
            finally:
                save(strategy.study)
    except FBOError as error:
        log(ERROR, "%s", error)
        raise
