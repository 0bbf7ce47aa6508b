"""An algorithm is an object: of this package, of a notebook, or of another package."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

from fbo_flower.algorithms import FTS, make_algorithm
from fbo_flower.algorithms.pne.racing import RacingPNE
from fbo_flower.algorithms.progress import Independent
from fbo_flower.algorithms.records import Trials
from fbo_flower.clients import client_app
from fbo_flower.simulation import simulate
from fbo_flower.simulation.grids import InProcessGrid
from fbo_flower.space import Float, SearchSpace
from fbo_flower.strategies import STRATEGIES, TuningStrategy

SPACE = SearchSpace({"x": Float(0, 1), "y": Float(0, 1)})
SMALL = {"num_features": 16, "num_candidates": 32, "num_path_features": 16}


def halton():
    """Return an algorithm of a class that only this function knows, as a notebook's cell would."""

    def digits(number, base):
        value, scale = 0.0, 1.0
        while number:
            number, digit = divmod(number, base)
            scale /= base
            value += digit * scale
        return value

    @dataclass(frozen=True, kw_only=True)
    class Halton(Independent):
        """The points of Halton's sequence."""

        name: ClassVar[str] = "halton"
        shift: float = 0.0

        def propose(self, task, agent_state, rng):
            trial = agent_state.next_trial
            if trial >= task.end:
                return None
            point = [(digits(trial + 1, base) + self.shift) % 1 for base in (2, 3)]
            return Trials(np.array([point]))

    return Halton(shift=0.25)


def run(algorithm, **given):
    return simulate(
        lambda config, centre: -((config["x"] - centre) ** 2) - config["y"],
        SPACE, [0.2, 0.4, 0.6], algorithm, 4, seed=3, engine="inline", **given,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("named", "made"),
    [
        (("fts", {"advice": "portfolio", **SMALL}), FTS(advice="portfolio", **SMALL)),
        (("pf-pne", {"variant": "racing", "budget": 30}), RacingPNE(budget=30)),
    ],
)
def test_an_object_gives_the_trials_of_its_name(named, made):
    assert run(made).trials == run(make_algorithm(*named)).trials


def test_a_strategy_takes_an_object_and_a_device_lists_classes_of_its_own():
    algorithm = halton()
    app = client_app(
        lambda c, context: c["x"], SPACE, seed=1, disclose="trials", algorithms=[type(algorithm)]
    )
    study = TuningStrategy(algorithm, num_agents=2, seed=1).start(InProcessGrid(app, 2), num_rounds=3).study
    assert len(study.trials) == 2 * 5
    one, two = (InProcessGrid(app, 2) for _ in range(2))
    named = STRATEGIES["fts"](num_agents=2, seed=1, **SMALL).start(one, num_rounds=3)
    made = TuningStrategy(FTS(**SMALL), num_agents=2, seed=1).start(two, num_rounds=3)
    assert named.study.trials == made.study.trials
