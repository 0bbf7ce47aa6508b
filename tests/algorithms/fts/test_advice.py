"""The sender of a single message is the one that Algorithm 1 of FTS draws, written down plainly."""

from dataclasses import replace

import numpy as np
import pytest

from fbo_flower import Float, SearchSpace
from fbo_flower.algorithms import FTS
from fbo_flower.algorithms.fts.fts import Adviser
from fbo_flower.algorithms.fts.fts import State as FTSState
from fbo_flower.algorithms.senders import RoundsPresent
from fbo_flower.numerics.seeding import generator
from fbo_flower.numerics.surrogates import rff

SPACE = SearchSpace({"x": Float(0.0, 1.0)})


def plain_sender(selector: Adviser, left: set[str], agent: str, draw: float) -> str | None:
    """The sender that a uniform number chooses, from the list of all that may be drawn."""
    own = {agent, *selector.used.get(agent, ())}
    others = [sender for sender in selector.senders if sender not in own]
    there = [sender for sender in others if sender not in left] or others
    return there[min(int(draw * len(there)), len(there) - 1)] if there else None


@pytest.mark.parametrize("preferences", ["uniform", "learned"])
@pytest.mark.parametrize("seed", range(30))
def test_a_sender_is_drawn_from_those_that_are_there(seed: int, preferences: str) -> None:
    rng = np.random.default_rng(seed)
    names = [str(i) for i in range(rng.integers(1, 7))]
    algorithm = FTS(
        num_features=4, schedule=0.0, communication="once", preferences=preferences, learning_rate=0.0
    )
    left = {name for name in names if rng.random() < 0.4}
    present = {name: (1, 1 if name in left else 20, 20) for name in [*names, "guest"]}
    features = rff.draw_features(4, 0.5, 1, rng)
    messages = {name: rng.standard_normal(4) for name in names if rng.random() < 0.8}
    known = FTSState(SPACE, features=features, messages=messages)
    state = replace(known, attendance=RoundsPresent(present, 20))
    assert state.attendance.have_left() == left
    selector = Adviser(algorithm, state, generator(seed))
    for agent in [*names, "guest"] * 3:
        draw = float(np.random.default_rng(seed).random())
        expected = plain_sender(selector, left, agent, draw)
        assert selector.is_ready(agent) == bool(set(messages) - {agent})
        advice = selector.advise_step(agent, 0, np.random.default_rng(seed))
        assert advice.get("weights") is (None if expected is None else messages[expected])
