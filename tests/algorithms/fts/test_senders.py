"""Who sends: which agents have left, and that the sender is the one that Algorithm 1 of FTS draws."""

from dataclasses import replace

import numpy as np
import pytest

from fbo_flower import Float, SearchSpace
from fbo_flower.algorithms import FTS
from fbo_flower.algorithms.fts.fts import Adviser
from fbo_flower.algorithms.fts.fts import State as FTSState
from fbo_flower.algorithms.senders import GAPS, RoundsPresent
from fbo_flower.numerics.seeding import generator
from fbo_flower.numerics.surrogates import rff


def after(rounds):
    """The record after these rounds, each a text with a letter per agent."""
    record = RoundsPresent()
    for number, agents in enumerate(rounds, 1):
        record = record.enter(agents, number)
    return record


def test_an_agent_that_is_away_for_longer_than_five_mean_gaps_has_left():
    record = after(["ab"] * 4 + ["a"] * GAPS)
    assert (record.mean_gap(), record.have_left()) == (1.0, frozenset())
    assert after(["ab"] * 4 + ["a"] * (GAPS + 1)).have_left() == {"b"}
    assert after(["ab"] * 4 + ["a"] * 20 + ["ab"]).have_left() == frozenset(), "it is back"
    unknown = after(["a", "b", "c"])
    assert (unknown.mean_gap(), unknown.have_left()) == (float("inf"), frozenset()), "nobody came twice"


def test_a_round_that_is_asked_twice_counts_once():
    record = after(["ab", "ab"])
    assert record.enter("ab", 2) == record


@pytest.mark.parametrize("fraction", [0.1, 0.3, 1.0])
def test_a_fraction_of_the_agents_in_each_round_is_no_departure(fraction):
    # 50 agents that stay, 200 rounds: at most 2 % of agents and rounds are taken for departures
    draws = np.random.default_rng(0)
    names = [str(i) for i in range(50)]
    record, wrong = RoundsPresent(), []
    for number in range(1, 201):
        record = record.enter(draws.choice(names, round(fraction * 50), replace=False).tolist(), number)
        wrong.append(len(record.have_left()))
    assert np.mean(wrong) < 0.02 * 50


# -- the sender, written down plainly ------------------------------------------------------------------

SPACE = SearchSpace({"x": Float(0.0, 1.0)})


def plain_sender(selector: Adviser, left: set[str], agent: str, draw: float) -> str | None:
    """The sender that a uniform number chooses, from the list of all that may be drawn."""
    own = {agent, *selector.used.get(agent, ())}
    others = [sender for sender in selector.senders if sender not in own]
    there = [sender for sender in others if sender not in left] or others
    return there[min(int(draw * len(there)), len(there) - 1)] if there else None


@pytest.mark.parametrize("preferences", ["uniform", "learned"])
@pytest.mark.parametrize("seed", range(12))
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
