"""An algorithm of a class that only a notebook knows; the device lists it."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fbo_flower.algorithms.protocol import Independent
from fbo_flower.algorithms.records import Trials
from fbo_flower.clients import client_app
from fbo_flower.simulation.grids import InProcessGrid
from fbo_flower.space import Float, SearchSpace
from fbo_flower.strategies import TuningStrategy


def in_a_cell():
    """Return an algorithm of a class that only this function knows, as a notebook's cell would."""

    @dataclass(frozen=True, kw_only=True)
    class Weyl(Independent):
        """Multiples of an irrational number."""

        name: ClassVar[str] = "weyl"
        step: float = 0.0

        def propose(self, task, agent_state, rng):
            trial = agent_state.next_trial
            return Trials(np.array([[trial * self.step % 1]])) if trial < task.end else None

    return Weyl(step=2**0.5)


def test_a_strategy_takes_an_object_and_a_device_lists_classes_of_its_own():
    algorithm = in_a_cell()
    space, listed = SearchSpace({"x": Float(0, 1)}), [type(algorithm)]
    app = client_app(lambda c, context: c["x"], space, seed=1, disclose="trials", algorithms=listed)
    study = TuningStrategy(algorithm, num_agents=2, seed=1).start(InProcessGrid(app, 2), num_rounds=3).study
    assert study.trials["value"].tolist() == [k * 2**0.5 % 1 for k in range(5)] * 2
