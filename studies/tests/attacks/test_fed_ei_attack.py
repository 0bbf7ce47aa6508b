"""What fed-ei gives away. Its record and docs/papers/fed_ei.md say the same: change them together."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fbo_flower.algorithms import FedEI
from fbo_flower.algorithms.ei.pool import check_task
from fbo_flower.algorithms.records import Phase
from fbo_flower.errors import WireError
from fbo_flower.secure.keys import CARD_BYTES
from fbo_flower.simulation import Problem
from studies.attacks import fed_ei, fed_ei_ladder, fed_ei_liars
from studies.attacks import fed_ei_server as server
from studies.attacks.fed_ei import Owned
from studies.papers.ei.problems import PROBLEMS

AGENTS = 5


def problem(seed: int) -> Problem:
    return PROBLEMS["Hartmann-3"](AGENTS, seed)


def several(seed: int) -> Problem:
    """Eight agents on a short function: three suspects, and two other members for each."""
    return PROBLEMS["Hartmann-3"](8, seed)


# -- a server that reads --------------------------------------------------------------------------------


@pytest.mark.parametrize(("spread", "low", "high"), [(0.01, 1.0, 1.0), (100.0, 0.0, 0.4)])
def test_rows_are_linked_if_agents_stay_where_they_are_and_by_chance_if_not(
    spread: float, low: float, high: float
) -> None:
    rng = np.random.default_rng(0)
    places, sums = rng.random((8, 4)), []
    for number in range(10):
        order = rng.permutation(8)[: 7 if number else 8]  # a row is lost in each later sum
        rows = (places + spread * rng.standard_normal(places.shape))[order]
        sums.append(Owned(rows, [str(agent) for agent in order]))
    links, ends = fed_ei.follow(sums, weight=1.0)
    assert len(links) == 9 * 7
    assert low <= np.mean(links) <= high
    assert len(ends) == 8
    assert low <= np.mean(ends) <= high


def test_a_server_that_reads_all_totals_knows_each_row_and_guesses_its_owner() -> None:
    found = fed_ei.watched(problem(0), 0, num_rounds=7)
    assert sorted(found) == [1, 2, 4, 5, 6, 7]
    assert not len(found[1].rows)
    assert max(found[2].owners.count(agent) for agent in "01234") == 1, "one of the initial design"
    for number in (4, 5, 6, 7):  # before, a trial repeats a point of somebody else, and enters no sum
        owners = found[number].owners
        assert len(set(owners)) == len(owners) == len(found[number].rows) >= AGENTS - 3
    links, ends = fed_ei.follow([found[number] for number in (5, 6, 7)], weight=0.1)
    assert len(links) >= 2 * (AGENTS - 3)
    assert len(ends) == len(found[5].rows)


# -- a server that lies ---------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", server.SCHEMES)
def test_no_row_stands_in_two_totals(scheme: str) -> None:
    twice, owner = server.nested(problem(1), 1, scheme, num_sums=AGENTS)
    assert twice.count >= AGENTS
    assert twice.error == 0
    assert owner.error <= 1 / (AGENTS - 2), "any member of its sum, from which one may be missing"


def test_without_the_rule_rows_stand_in_several_totals_and_have_few_possible_owners() -> None:
    twice, owner = server.nested(problem(1), 1, server.SCHEMES[0], server.Again(), 2 * AGENTS)
    assert twice.error > 0.8 * twice.count
    assert owner.error > 1.5 * owner.guess


@pytest.mark.parametrize("mark", server.MARKS)
def test_an_agent_that_is_told_something_else_is_not_recognised(mark: str) -> None:
    found = server.marked(problem(1), 1, mark)
    assert found.count >= AGENTS
    assert found.error == 0


@pytest.mark.parametrize("mark", ["level", "rows"])
def test_an_agent_that_does_not_compare_is_recognised(mark: str) -> None:
    found = [server.marked(problem(seed), seed, mark, server.Credulous()) for seed in (0, 1)]
    assert sum(result.error for result in found) >= 1  # where its row is not lost


def test_tables_of_odd_sizes_are_refused() -> None:
    assert server.tables(problem(0), 0).error == 0
    task = server.SHARING.task(Phase.TRAIN, 1, 2, 1)
    check_task(task)
    for size in (32, 96, 2**21):
        with pytest.raises(WireError, match="slots"):
            check_task(replace(task, values={**task.values, "slots": size}))
    cards = np.zeros((8, CARD_BYTES), dtype=np.uint8)
    many = replace(task, arrays={**task.arrays, "secure.members": cards})
    with pytest.raises(WireError, match="8 for each of 9"):
        check_task(replace(many, values={**many.values, "slots": 64}))


def test_nobody_is_the_only_one_with_moments_in_a_sum() -> None:
    (found,) = server.alone(problem(1), 1)
    assert found.error == found.guess


REPEATING = server.Repeating(secure_sums=server.LEAST)


@pytest.mark.parametrize(("honest", "low", "high"), [(server.HONEST, 0.0, 0.25), (REPEATING, 0.9, 1.0)])
def test_an_agent_that_is_asked_alone_is_named_only_if_repeats_enter_sums(
    honest: FedEI, low: float, high: float
) -> None:
    found = server.asked_alone(several(1), 1, honest)
    assert found.count > 0
    assert low <= found.error <= high


@pytest.mark.parametrize(("honest", "low", "high"), [(server.HONEST, 0.0, 0.7), (REPEATING, 0.9, 1.0)])
def test_a_lie_to_all_names_the_owner_of_a_row_only_if_repeats_enter_sums(
    honest: FedEI, low: float, high: float
) -> None:
    right = [server.same_lie(several(seed), seed, honest).error for seed in range(5)]
    assert low <= np.mean(right) <= high


@pytest.mark.parametrize(("honest", "is_seen"), [(server.HONEST, False), (REPEATING, True)])
def test_a_late_agent_is_recognised_only_if_repeats_enter_sums(honest: FedEI, is_seen: bool) -> None:
    found = server.late(several(1), 1, honest)
    assert found.count > 0
    assert (found.error > 0) == is_seen


@pytest.mark.parametrize(
    ("control", "low", "high"), list(zip(server.PAIRED, (0, 0, 0.8), (0.5, 0.9, 1), strict=True))
)
def test_no_two_rows_are_paired_by_moments_unless_both_initial_rows_are_there(
    control: str, low: float, high: float
) -> None:
    right = [server.pairs(PROBLEMS["Hartmann-3"](4, seed), seed, control).error for seed in range(8)]
    assert low <= np.mean(right) <= high


def test_a_made_up_pool_that_all_are_told_says_little_about_owners() -> None:
    right = [server.invented(several(seed), seed).error for seed in range(4)]
    assert 0.0 <= np.mean(right) <= 0.9, "chance is a third; over 40 seeds it is .5"


def test_a_made_up_ladder_shows_limits_no_better_than_honest_rows_do() -> None:
    seen = {
        (honest is server.HONEST, lies): fed_ei_ladder.seen(1, "limit", honest, lies)
        for honest in (server.HONEST, REPEATING)
        for lies in (True, False)
    }
    assert seen[True, True] < seen[True, False] + 0.3, "over 8 seeds .65 and .66"
    assert seen[False, True] > 0.6, "a control: repeats enter sums"


# -- members that lie -----------------------------------------------------------------------------------


@pytest.mark.parametrize("what", fed_ei.FILLS)
def test_a_member_that_fills_its_table_adds_and_changes_no_row_and_the_log_names_the_sum(what: str) -> None:
    found = fed_ei.filled(PROBLEMS["Hartmann-3"](8, 0), what, 0)
    assert found.num_false == 0
    assert bool(found.lines) == (what != "huge values"), "with huge values the whole sum fails"
    assert all("fill the table" in line for line in found.lines)


def test_liars_change_what_honest_agents_try() -> None:
    for method in ("fed-ei, true points", "fed-ei, random points", "share-best"):
        rows = (f"{method}; {number}" for number in (0, 3))
        none, some = (fed_ei_liars.scores("Styblinski-5", row, 0, 5)["best"] for row in rows)
        assert (none.shape, some.shape) == ((8, 5), (5, 5))
        assert (none[:5] != some).any()


# -- sums of features -----------------------------------------------------------------------------------


def test_one_sum_of_features_tells_all_points_and_values_and_not_whose_they_are() -> None:
    for found in fed_ei.first_sum(1, num_agents=6, num_features=40):
        assert found.error < 1e-10 < 1e-3 * found.guess
