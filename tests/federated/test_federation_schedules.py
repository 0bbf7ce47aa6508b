"""The schedules against hand-worked cases and against a plain reading of the papers' algorithms."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from fbo_flower import Float, SearchSpace
from fbo_flower.errors import ConfigError
from fbo_flower.federated.records import Trial, TrialRound
from fbo_flower.federated.schedules import (
    ASHA,
    GoOn,
    Hyperband,
    Schedule,
    Start,
    SuccessiveHalving,
    make_schedule,
    ranked,
)


def run(schedule: Schedule, num_trials: int, places: int = 1, seed: int = 0) -> list[Trial]:
    """Run trials whose value is their number's fixed quality, `places` at a time."""
    quality = np.random.default_rng(seed).permutation(10_000) / 10_000
    trials: list[Trial] = []
    while True:
        while sum(t.runs for t in trials) < places:
            choice = schedule.choose(trials)
            if choice is None or (isinstance(choice, Start) and len(trials) == num_trials):
                break
            if isinstance(choice, Start):
                trials.append(Trial(len(trials), {}, np.zeros(1), choice.bracket, target=choice.target))
            else:
                trials[choice.trial] = replace(trials[choice.trial], target=choice.target)
        if not any(t.runs for t in trials):
            return trials
        trials = [t.learn(TrialRound(t.round + 1, quality[t.number])) if t.runs else t for t in trials]


def test_asha_promotes_the_best_quarter_of_every_rung() -> None:
    trials = run(ASHA(16, 4, 1), 64)
    reached = Counter(trial.round for trial in trials)
    assert set(reached) == {1, 4, 16}
    at_least_4 = [t for t in trials if t.round >= 4]
    best = {t.number for t in ranked(trials, 1)[:16]}
    assert best <= {t.number for t in at_least_4}
    assert 16 <= len(at_least_4) <= 32  # promotions from incomplete rungs let some more go on


def test_asha_starts_a_trial_when_nothing_can_be_promoted_and_never_waits() -> None:
    schedule = ASHA(16, 4, 1)
    trials = [Trial(i, {}, np.zeros(1), rounds=(TrialRound(1, i / 10),), target=1) for i in range(3)]
    assert schedule.choose(trials) == Start(0, 1)
    trials.append(Trial(3, {}, np.zeros(1), rounds=(TrialRound(1, 0.05),), target=1))
    assert schedule.choose(trials) == GoOn(2, 4)
    trials[2] = replace(trials[2], target=4)  # runs: nobody else is among the best quarter
    assert schedule.choose(trials) == Start(0, 1)


def test_asha_promotes_from_the_highest_rung_first() -> None:
    fours = [
        Trial(i, {}, np.zeros(1), rounds=tuple(TrialRound(r, i / 9) for r in range(1, 5)), target=4)
        for i in range(4)
    ]
    ones = [Trial(i, {}, np.zeros(1), rounds=(TrialRound(1, i / 90),), target=1) for i in range(4, 28)]
    assert ASHA(16, 4, 1).choose([*fours, *ones]) == GoOn(3, 16)


def test_a_failed_trial_counts_in_its_rung_and_is_never_promoted() -> None:
    trials = [Trial(i, {}, np.zeros(1), rounds=(TrialRound(1, i / 10),), target=1) for i in range(4)]
    trials[3] = replace(trials[3], failure="diverged")
    assert ASHA(16, 4, 1).choose(trials) == Start(0, 1)  # its curve is the best, but it has failed
    trials = [*trials[:3], Trial(3, {}, np.zeros(1), target=1, failure="diverged")]
    assert ASHA(16, 4, 1).choose(trials) == GoOn(2, 4)


@pytest.mark.parametrize("places", [1, 3])
def test_successive_halving_promotes_exactly_the_best_of_a_complete_rung(places: int) -> None:
    trials = run(SuccessiveHalving(9, 3, 1), 9, places)
    order = [t.number for t in ranked(trials, 1)]
    assert {t.number for t in trials if t.round >= 3} == set(order[:3])
    assert {t.number for t in trials if t.round == 9} == set(order[:1])


def test_hyperband_has_the_brackets_of_its_paper() -> None:
    # Table 1 of [Li2018]: R = 81, eta = 3
    schedule = Hyperband(81, 3, 1)
    assert [schedule.num_trials(b) for b in range(5)] == [81, 34, 15, 8, 5]
    assert [schedule.rungs_of(b)[0] for b in range(5)] == [1, 3, 9, 27, 81]
    trials = run(Hyperband(9, 3, 1), 9 + 5 + 3)
    sizes = [Counter(t.round for t in trials if t.bracket == b) for b in range(3)]
    assert sizes == [{1: 6, 3: 2, 9: 1}, {3: 4, 9: 1}, {9: 3}]


def test_a_failed_trial_does_not_stop_a_bracket() -> None:
    schedule = SuccessiveHalving(9, 3, 1)
    trials = [Trial(i, {}, np.zeros(1), rounds=(TrialRound(1, i / 10),), target=1) for i in range(8)]
    trials.append(Trial(8, {}, np.zeros(1), target=1, failure="diverged"))
    for expected in (7, 6, 5):
        choice = schedule.choose(trials)
        assert choice == GoOn(expected, 3)
        trials[expected] = replace(trials[expected], target=3)
    assert schedule.choose(trials) is None


@pytest.mark.parametrize(
    ("name", "eta", "first", "words"),
    [("ahsa", 4, 1, "did you mean asha"), ("asha", 1, 1, "eta"), ("asha", 4, 17, "first_rung")],
)
def test_wrong_schedules_are_refused(name: str, eta: int, first: int, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        make_schedule(name, 16, eta, first, SearchSpace({"x": Float(0, 1)}), 0)


def test_without_a_schedule_every_trial_runs_to_its_end() -> None:
    schedule = make_schedule("none", 16, 4, 1, SearchSpace({"x": Float(0, 1)}), 0)
    assert schedule.rungs_of(0) == (16,)
    assert {trial.round for trial in run(schedule, 5, 2)} == {16}
