"""Which trial goes on, by the papers' algorithms and hand-worked cases, and with which clients."""

from collections import Counter
from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest

from fbo_flower.federated.records import FederatedTrial as Trial
from fbo_flower.federated.records import TrialRound
from fbo_flower.federated.schedules import (
    ASHA,
    GoOn,
    Hyperband,
    NewTrial,
    SuccessiveHalving,
    ranked,
)
from fbo_flower.federated.tuner import Shares, assignment


def run(schedule, num_trials, places=1, seed=0):
    """Run trials whose value is their number's fixed quality, `places` at a time."""
    quality = np.random.default_rng(seed).permutation(10_000) / 10_000
    trials = []
    while True:
        while sum(t.runs for t in trials) < places:
            choice = schedule.choose(trials)
            if choice is None or (isinstance(choice, NewTrial) and len(trials) == num_trials):
                break
            if isinstance(choice, NewTrial):
                trials.append(Trial(len(trials), {}, np.zeros(1), choice.bracket, target=choice.target))
            else:
                trials[choice.trial] = replace(trials[choice.trial], target=choice.target)
        if not any(t.runs for t in trials):
            return trials
        trials = [t.learn(TrialRound(t.round + 1, quality[t.number])) if t.runs else t for t in trials]


def at(number, value, rounds=1, target=None, failure=""):
    """Return a trial with a value after each of its rounds."""
    done = tuple(TrialRound(r, value) for r in range(1, rounds + 1))
    return Trial(number, {}, np.zeros(1), rounds=done, target=target or max(rounds, 1), failure=failure)


FOUR = [at(0, 0.0), at(1, 0.1), at(2, 0.2), at(3, 0.05)]
CHOICES = {
    "nothing can be promoted": (FOUR[:3], NewTrial(0, 1)),
    "the best of four": (FOUR, GoOn(2, 4)),
    "it runs, and nobody else is among the best quarter": (
        [*FOUR[:2], at(2, 0.2, target=4), FOUR[3]], NewTrial(0, 1)
    ),
    "from the highest rung first": (
        [*(at(i, i / 9, 4) for i in range(4)), *(at(i, i / 90) for i in range(4, 28))], GoOn(3, 16)
    ),
    "one that failed is never promoted": ([*FOUR[:3], at(3, 0.3, failure="diverged")], NewTrial(0, 1)),
    "one that failed at once counts in its rung": ([*FOUR[:3], at(3, 0, 0, 1, "diverged")], GoOn(2, 4)),
}  # fmt: skip


@pytest.mark.parametrize(("trials", "expected"), CHOICES.values(), ids=CHOICES)
def test_asha_promotes_the_best_or_starts_a_trial_and_never_waits(trials, expected):
    assert ASHA(16, 4, 1).choose(trials) == expected


@pytest.mark.parametrize("places", [1, 3])
def test_successive_halving_promotes_exactly_the_best_of_a_complete_rung(places):
    trials = run(SuccessiveHalving(9, 3, 1), 9, places)
    order = [t.number for t in ranked(trials, 1)]
    assert {t.number for t in trials if t.round >= 3} == set(order[:3])
    assert {t.number for t in trials if t.round == 9} == set(order[:1])


def test_hyperband_has_the_brackets_of_its_paper():
    # Table 1 of [Li2018]: R = 81, eta = 3
    schedule = Hyperband(81, 3, 1)
    assert [schedule.num_trials(b) for b in range(5)] == [81, 34, 15, 8, 5]
    assert [schedule.rungs_of(b)[0] for b in range(5)] == [1, 3, 9, 27, 81]
    trials = run(Hyperband(9, 3, 1), 9 + 5 + 3)
    sizes = [Counter(t.round for t in trials if t.bracket == b) for b in range(3)]
    assert sizes == [{1: 6, 3: 2, 9: 1}, {3: 4, 9: 1}, {9: 3}]


def test_a_failed_trial_does_not_stop_a_bracket():
    schedule = SuccessiveHalving(9, 3, 1)
    trials = [*(at(i, i / 10) for i in range(8)), at(8, 0, 0, 1, "diverged")]
    for expected in (7, 6, 5):
        choice = schedule.choose(trials)
        assert choice == GoOn(expected, 3)
        trials[expected] = replace(trials[expected], target=3)
    assert schedule.choose(trials) is None


# the clients of trials that run side by side


def trials(*numbers):
    return [Trial(number, {}, np.zeros(1)) for number in numbers]


def together(shares):
    return sorted(client for share in shares.values() for client in share)


def round_of(shares, running, clients):
    """Do a round, in place, and return who had which clients."""
    found = shares.assign(running, clients)
    for place, trial in enumerate(running):
        done = TrialRound(
            trial.round + 1, 0.0, blocks=sorted({shares.block_of[k] for k in found[trial.number]})
        )
        running[place] = trial.learn(done)
    return found


@pytest.mark.parametrize(("places", "clients"), [(1, 5), (2, 8), (3, 10), (4, 20)])
def test_every_trial_sees_every_client_once_in_as_many_rounds_as_there_are_places(places, clients):
    shares, running = Shares(places, 7), trials(*range(places))
    seen = {trial: [] for trial in range(places)}
    for _ in range(places):
        found = round_of(shares, running, range(clients))
        assert together(found) == list(range(clients))
        assert max(map(len, found.values())) - min(map(len, found.values())) <= 1
        for trial, share in found.items():
            seen[trial] += share
    assert all(sorted(share) == list(range(clients)) for share in seen.values())


def test_a_client_that_leaves_is_left_out_and_one_that_comes_is_used():
    shares = Shares(2, 3)
    shares.assign(trials(0, 1), range(6))
    found = shares.assign(trials(0, 1), [0, 1, 2, 4, 5, 99])
    assert together(found) == [0, 1, 2, 4, 5, 99]
    assert {len(share) for share in found.values()} == {3}


def test_the_assignment_is_the_best_of_all():
    rng = np.random.default_rng(5)
    for _ in range(20):
        visits = rng.integers(0, 4, (3, 3))
        cost = sum(visits[trial, block] for trial, block in assignment(visits))
        assert cost == min(sum(visits[t, p[t]] for t in range(3)) for p in permutations(range(3)))


def test_counts_are_those_of_the_trials_so_they_survive_a_resume():
    shares, running = Shares(3, 0), trials(0, 1, 2)
    first = round_of(shares, running, range(9))
    assert shares.assign(running, range(9)) != first
    assert Shares(3, 0).assign(running, range(9)) == shares.assign(running, range(9))
    fresh = [replace(trial, rounds=()) for trial in running]
    assert Shares(3, 0).assign(fresh, range(9)) == first
