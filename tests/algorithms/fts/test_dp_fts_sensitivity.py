"""What one agent changes in the sums of DP-FTS, by brute force over neighbouring federations.

Neighbours have the same registered agents and the same secret draws. In one of them an agent takes no part:
its reports do not arrive, or it is not even present. All sums before noise are compared.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest

from fbo_flower.algorithms import DPFTS
from fbo_flower.algorithms.fts.dp_fts import DPFTSState
from fbo_flower.algorithms.records import Array, Federation, Phase, Report
from fbo_flower.numerics.discrete_noise import uniform_from
from fbo_flower.numerics.noise_grid import noise_variance
from fbo_flower.numerics.seeding import generator
from fbo_flower.space import Float, SearchSpace

SQUARE = SearchSpace({"x": Float(0.0, 1.0), "y": Float(0.0, 1.0)})
NUM_ROUNDS, NUM_FEATURES = 6, 5


@dataclass(frozen=True, kw_only=True)
class SharesOfThePresent(DPFTS):
    """The control: shares are normalised over the agents that are present, as they once were."""

    def _collect(self, state, server_round, present):
        collected = super()._collect(state, server_round, present)
        if collected.collection is None:
            return collected
        there = replace(state, regions={agent: state.regions[agent] for agent in present})
        shares = self._shares(there)
        mine = {agent: shares[agent] for agent in collected.collection.shares}
        largest = max(float(np.linalg.norm(share)) for share in shares.values())
        return replace(collected, collection=replace(collected.collection, shares=mine, largest=largest))


@dataclass(frozen=True)
class Release:
    """A sum before noise, `(P, M)` whole steps, and the standard deviation of its noise in steps."""

    steps: Array
    stddev: float


def play(algorithm, agents, messages, *, silent=(), absent=()) -> list[Release]:
    """Play some rounds with given messages, and return all sums before noise."""
    state: DPFTSState = algorithm.init(Federation(SQUARE, agents), generator(0, "init"))
    present = [agent for agent in agents if agent not in absent]
    found = []
    for server_round in range(1, NUM_ROUNDS + 1):
        if state.collection is not None:
            stddev = algorithm.noise_multiplier * state.collection.largest * algorithm._bound(SQUARE)
            variance = noise_variance(stddev, algorithm._step(SQUARE))
            found.append(Release(algorithm._clear_sums(state), math.sqrt(variance)))
        uniform = uniform_from(generator(7, "draws", server_round))
        # the noise takes a number of draws that depends on it: sample from a source of its own
        drawn = algorithm.secret_draws(state, Phase.TRAIN, server_round, present, uniform)
        coins = uniform_from(generator(7, "coins", server_round))
        sampled = algorithm.secret_draws(
            replace(state, collection=None), Phase.TRAIN, server_round, present, coins
        )
        state = algorithm.with_draws(state, {**drawn, **sampled})
        state, tasks = algorithm.ask(state, Phase.TRAIN, server_round, present, generator(0, server_round))
        reports = {
            agent: Report(
                task.trial, task.num_trials, 0,
                {"weights": messages[agent]} if "message" in task.values else {},
            )
            for agent, task in tasks.items()
            if agent not in silent
        }  # fmt: skip
        state = algorithm.tell(state, Phase.TRAIN, reports)
    return found


def largest_change(algorithm, agents, messages, **without) -> float:
    """Return the largest norm of a change over all regions, in units of the noise, times `z`."""
    whole, part = play(algorithm, agents, messages), play(algorithm, agents, messages, **without)
    assert len(whole) == len(part) == NUM_ROUNDS - 1
    return max(
        float(np.linalg.norm(one.steps - two.steps))
        / min(one.stddev, two.stddev)
        * algorithm.noise_multiplier
        for one, two in zip(whole, part, strict=True)
    )


CASES = [
    (num_agents, num_regions, region_releases, multiplier)
    for num_agents in (2, 3, 6)
    for num_regions in (1, 3)
    for region_releases, multiplier in ((1, 1.0), (3, 0.5), (10, 4.0))
]


def made(kind, num_agents, num_regions, region_releases, multiplier, rate=1.0):
    algorithm = kind(
        num_features=NUM_FEATURES, num_regions=num_regions, region_releases=region_releases,
        region_weight=3.0, noise_multiplier=multiplier, sampling_rate=rate, schedule=0.5, clip=0.7,
    )  # fmt: skip
    return algorithm, tuple(map(str, range(num_agents)))


def worst_messages(agents, seed=0):
    """Long messages; with all agents' pointing one way but one, to the other."""
    rng = np.random.default_rng(seed)
    return {agent: 100 * rng.standard_normal(NUM_FEATURES) for agent in agents}


def test_no_agent_changes_the_sums_by_more_than_the_noise_is_made_for() -> None:
    reached = []
    for case in CASES:
        algorithm, agents = made(DPFTS, *case)
        messages = worst_messages(agents)
        for agent in agents:
            for without in ({"silent": (agent,)}, {"absent": (agent,)}):
                change = largest_change(algorithm, agents, messages, **without)
                assert change <= 1.0, (case, agent, without)
                reached.append(change)
    assert max(reached) > 1 - 1e-6, "the noise is not larger than it has to be"


@pytest.mark.parametrize("rate", [0.35, 0.8])
def test_nor_where_agents_are_sampled(rate: float) -> None:
    for num_agents, num_regions in ((3, 1), (4, 3), (6, 2)):
        algorithm, agents = made(DPFTS, num_agents, num_regions, 3, 1.0, rate)
        for agent in agents:
            assert largest_change(algorithm, agents, worst_messages(agents), absent=(agent,)) <= 1.0


def test_shares_of_the_agents_that_are_present_change_the_sums_by_about_twice_as_much() -> None:
    algorithm, agents = made(SharesOfThePresent, 6, 1, 1, 1.0)
    one_way = {agent: np.eye(NUM_FEATURES)[0] for agent in agents}
    changes = []
    for agent in agents:
        against = one_way | {agent: -np.eye(NUM_FEATURES)[0]}
        changes.append(largest_change(algorithm, agents, against, absent=(agent,)))
    assert max(changes) > 1.9
    honest, _ = made(DPFTS, 6, 1, 1, 1.0)
    assert largest_change(honest, agents, one_way | {"0": -one_way["0"]}, absent=("0",)) <= 1.0


def test_shares_regions_and_noise_of_the_others_do_not_depend_on_who_is_present() -> None:
    algorithm, agents = made(DPFTS, 5, 3, 2, 1.0)
    for absent in agents:
        state = algorithm.init(Federation(SQUARE, agents), generator(0, "init"))
        collections = []
        for present in (agents, [a for a in agents if a != absent]):
            drawn = algorithm.secret_draws(
                state, Phase.TRAIN, 1, present, uniform_from(generator(0, "draws"))
            )
            asked, _ = algorithm.ask(
                algorithm.with_draws(state, drawn), Phase.TRAIN, 1, present, generator(0)
            )
            assert asked.regions == state.regions
            collections.append(asked.collection)
        whole, part = collections
        assert whole.largest == part.largest
        assert set(part.shares) == set(whole.shares) - {absent}
        for agent, share in part.shares.items():
            np.testing.assert_array_equal(share, whole.shares[agent])


def test_an_agent_that_registers_late_counts_from_the_next_release_on() -> None:
    algorithm, agents = made(DPFTS, 3, 1, 1, 1.0)
    state = algorithm.init(Federation(SQUARE, agents), generator(0, "init"))
    largest = []
    for server_round, present in enumerate([agents, (*agents, "9"), agents], start=1):
        drawn = algorithm.secret_draws(
            state, Phase.TRAIN, server_round, present, uniform_from(generator(server_round))
        )
        state = algorithm.with_draws(state, drawn)
        state, _ = algorithm.ask(state, Phase.TRAIN, server_round, present, generator(0))
        largest.append(state.collection.largest)
    np.testing.assert_allclose(largest, [1 / 3, 1 / 4, 1 / 4])


def test_secure_sums_are_accounted_without_sampling() -> None:
    """A sample that is too small makes no release, so one that is made was likelier to hold an agent."""
    plain, secure = DPFTS(sampling_rate=0.35), DPFTS(sampling_rate=0.35, secure_sums=3)
    assert secure.epsilon(5) == DPFTS(sampling_rate=1.0).epsilon(5) > 2 * plain.epsilon(5)
    # 4 agents, samples of 3 or 4 make a release: an agent is then in it far more often than 0.35
    rng = np.random.default_rng(0)
    drawn = rng.random((100_000, 4)) < 0.35
    assert drawn[drawn.sum(axis=1) >= 3][:, 0].mean() > 0.75
