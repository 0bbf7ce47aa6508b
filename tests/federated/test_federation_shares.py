from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest

from fbo_flower.federated.records import Trial, TrialRound
from fbo_flower.federated.tuner import Shares, assignment


def trials(*numbers):
    return [Trial(number, {}, np.zeros(1)) for number in numbers]


def together(shares):
    return sorted(client for share in shares.values() for client in share)


def round_of(shares, running, clients):
    """Do a round, in place, and return who had which clients."""
    found = shares.assign(running, clients)
    for place, trial in enumerate(running):
        done = TrialRound(trial.round + 1, 0.0, blocks=shares.blocks_of(found[trial.number]))
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


def test_trials_that_come_and_go_still_see_all_clients_about_equally_often():
    shares, rng = Shares(4, 1), np.random.default_rng(0)
    counts = {}
    for generation in range(5):
        running = trials(*range(4 * generation, 4 * generation + 4))
        for _ in range(40):
            there = running[: rng.integers(1, 5)]
            found = round_of(shares, there, range(16))
            running[: len(there)] = there
            assert together(found) == list(range(16))
            for trial, share in found.items():
                counts.setdefault(trial, np.zeros(16, dtype=int))[share] += 1
    assert all(count.max() - count.min() <= 2 for count in counts.values())


def test_competing_trials_are_judged_by_the_same_groups_of_clients():
    shares, running = Shares(2, 3), trials(0, 1)
    found = [round_of(shares, running, range(9)) for _ in range(6)]
    assert len({tuple(share) for shares in found for share in shares.values()}) == 2


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
