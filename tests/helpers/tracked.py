"""A small federation with trials that fail and a conditional parameter, for tests of trackers."""

from fbo_flower import Categorical, Float, Int, Ordinal, SearchSpace
from fbo_flower.clients import client_app
from fbo_flower.simulation.grids import InProcessGrid
from fbo_flower.strategies import STRATEGIES

SPACE = SearchSpace(
    {
        "C": Float(1e-3, 1e3, log=True),
        "n": Int(1, 4),
        "kernel": Categorical(["rbf", "linear"]),
        "gamma": Float(1e-4, 10, log=True, active_when={"kernel": "rbf"}),
        "width": Ordinal([1, 2.5, 10]),
    }
)


def score(config, context):
    if config["n"] == 3:
        raise ValueError("n is three")
    return 0.8642 + config["n"] * config.get("gamma", 0.1)


def tune(callbacks, *, disclose="trials", num_rounds=3, journal=None, resume=False, grid=None, **settings):
    """Run random search with three agents and two trials in a round."""
    grid = grid or InProcessGrid(client_app(score, SPACE, seed=1, disclose=disclose), 3)
    strategy = STRATEGIES["random"](
        seed=3, num_agents=3, trials_per_round=2, callbacks=callbacks, label="by chance", **settings
    )
    return strategy.start(grid, num_rounds=num_rounds, journal=journal, resume=resume).study
