from __future__ import annotations

import numpy as np
import pytest

from fbo_flower.federated.shares import Shares, assignment


def together(shares: dict[int, list[int]]) -> list[int]:
    return sorted(client for share in shares.values() for client in share)


@pytest.mark.parametrize(("places", "clients"), [(1, 5), (2, 8), (3, 10), (4, 20)])
def test_every_trial_sees_every_client_once_in_as_many_rounds_as_there_are_places(
    places: int, clients: int
) -> None:
    shares = Shares(places, 7)
    seen: dict[int, list[int]] = {trial: [] for trial in range(places)}
    for _ in range(places):
        found = shares.assign(range(places), range(clients))
        assert together(found) == list(range(clients))
        assert max(map(len, found.values())) - min(map(len, found.values())) <= 1
        shares.note(found)
        for trial, share in found.items():
            seen[trial] += share
    assert all(sorted(share) == list(range(clients)) for share in seen.values())


def test_trials_that_come_and_go_still_see_all_clients_about_equally_often() -> None:
    shares, rng = Shares(4, 1), np.random.default_rng(0)
    counts: dict[int, np.ndarray] = {}
    for server_round in range(200):
        trials = [4 * (server_round // 40) + k for k in range(rng.integers(1, 5))]
        found = shares.assign(trials, range(16))
        shares.note(found)
        assert together(found) == list(range(16))
        for trial, share in found.items():
            counts.setdefault(trial, np.zeros(16, dtype=int))[share] += 1
    assert all(count.max() - count.min() <= 2 for count in counts.values())


def test_competing_trials_are_judged_by_the_same_groups_of_clients() -> None:
    shares = Shares(2, 3)
    groups = set()
    for _ in range(6):
        found = shares.assign([0, 1], range(9))
        shares.note(found)
        groups |= {tuple(share) for share in found.values()}
    assert len(groups) == 2


def test_a_client_that_leaves_is_left_out_and_one_that_comes_is_used() -> None:
    shares = Shares(2, 3)
    shares.assign([0, 1], range(6))
    found = shares.assign([0, 1], [0, 1, 2, 4, 5, 99])
    assert together(found) == [0, 1, 2, 4, 5, 99]
    assert {len(share) for share in found.values()} == {3}


def test_the_assignment_is_the_best_of_all() -> None:
    rng = np.random.default_rng(5)
    from itertools import permutations

    for _ in range(20):
        visits = rng.integers(0, 4, (3, 3))
        cost = sum(visits[trial, block] for trial, block in assignment(visits))
        assert cost == min(sum(visits[t, p[t]] for t in range(3)) for p in permutations(range(3)))


def test_counts_survive_a_resume() -> None:
    shares = Shares(3, 0)
    for _ in range(2):
        shares.note(shares.assign([0, 1, 2], range(9)))
    other = Shares(3, 0)
    for trial in range(3):
        other.put_visits(trial, shares.visits(trial))
    assert other.assign([0, 1, 2], range(9)) == shares.assign([0, 1, 2], range(9))
