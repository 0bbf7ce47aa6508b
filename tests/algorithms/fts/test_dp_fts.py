"""DP-FTS: the sums that leave the server, the noise on them, and a budget that is never exceeded."""

import math
from dataclasses import replace

import numpy as np
import pytest
from contract import SQUARE, Run, same, step
from scipy import stats

from fbo_flower.algorithms import DPFTS, ThompsonSampling
from fbo_flower.algorithms.fts.dp_fts import largest_norm
from fbo_flower.algorithms.messages import Replies
from fbo_flower.algorithms.records import AgentState, Federation, Phase, Report, Task, Trials
from fbo_flower.algorithms.server import informed
from fbo_flower.numerics.discrete_noise import noise_variance, uniform_from
from fbo_flower.numerics.privacy import sampled_epsilon
from fbo_flower.numerics.seeding import generator

SMALL = {"num_candidates": 64, "num_path_features": 32, "num_features": 12}
AGENTS = tuple(str(i) for i in range(8))


def asked(algorithm, state, server_round, rng, present=AGENTS):
    """Draw in secret, then ask."""
    draws = algorithm.secret_draws(state, Phase.TRAIN, server_round, present, uniform_from(rng))
    state = informed(state, drawn=draws)
    return algorithm.ask(state, Phase.TRAIN, server_round, present, rng)


def reports_of(tasks, messages):
    """Reports to some tasks, with a message of each agent that was asked for one."""
    sent = {a: {"weights": messages[a]} if "message" in task.values else {} for a, task in tasks.items()}
    return {a: Report(task.trial, task.num_trials, 0, sent[a]) for a, task in tasks.items()}


def released(algorithm, messages, seed=0):
    """The sums after every agent has sent its message, and the state before they were made."""
    state = algorithm.init(Federation(SQUARE, AGENTS), generator(0, "init"))
    state, tasks = asked(algorithm, state, 1, generator(0, "one"))
    told = algorithm.tell(state, Phase.TRAIN, Replies(reports_of(tasks, messages), algorithm.report_content))
    return asked(algorithm, told, 2, generator(seed, "two"))[0].weights, told


# -- the sums ----------------------------------------------------------------------------------


def test_without_noise_and_sampling_the_sum_is_the_mean_of_clipped_messages():
    algorithm = DPFTS(**SMALL, noise_multiplier=0, sampling_rate=1.0, clip=2.0)
    draws = np.random.default_rng(0)
    messages = {agent: draws.standard_normal(12) for agent in AGENTS}
    clipped = [m * min(1.0, 2.0 / np.linalg.norm(m)) for m in messages.values()]
    sums, _ = released(algorithm, messages)
    np.testing.assert_allclose(sums, [np.mean(clipped, axis=0)], atol=8 * 2.0**-39)  # steps of the grid


def test_early_sums_are_of_those_who_explored_the_region_and_late_ones_of_all():
    messages = {agent: np.eye(12)[int(agent)] for agent in AGENTS}
    options = SMALL | {"noise_multiplier": 0, "sampling_rate": 1.0, "clip": 10.0, "num_regions": 4}
    sums, _ = released(DPFTS(**options, region_weight=60.0), messages)
    for region in range(4):  # agents 0 and 4 explored region 0, and so on
        expected = (np.arange(12) % 4 == region) & (np.arange(12) < 8)
        np.testing.assert_allclose(sums[region], expected / 2, atol=1e-12)
    sums, _ = released(DPFTS(**options, region_weight=0.0), messages)
    np.testing.assert_allclose(sums, np.tile(np.arange(12) < 8, (4, 1)) / 8, atol=1e-12)


def test_the_noise_is_as_large_as_the_change_that_one_agent_can_make():
    """The noise is `z` times the largest change: measured by leaving out each agent, at its worst message."""
    options = SMALL | {"num_regions": 4, "sampling_rate": 1.0, "clip": 3.0}
    algorithm, noisy = (DPFTS(**options, noise_multiplier=z) for z in (0, 1.0))
    draws = np.random.default_rng(1)
    messages = {agent: 1e9 * draws.standard_normal(12) for agent in AGENTS}  # long ones count like short ones
    whole, _ = released(algorithm, messages)
    without = (released(algorithm, messages | {agent: np.zeros(12)})[0] for agent in AGENTS)
    change = max(np.linalg.norm(whole - sums) for sums in without)
    draws_of_noise = np.array([released(noisy, messages, seed)[0] - whole for seed in range(60)]) / change
    assert draws_of_noise.std() == pytest.approx(1.0, rel=0.07)
    assert stats.kstest(draws_of_noise.ravel(), "norm").pvalue > 1e-3
    assert stats.kstest(1.2 * draws_of_noise.ravel(), "norm").pvalue < 1e-3  # negative control


def test_agents_are_sampled_by_independent_coins():
    algorithm = DPFTS(**SMALL, sampling_rate=0.3)
    state = algorithm.init(Federation(SQUARE, AGENTS), generator(0, "init"))
    sizes = []
    for seed in range(200):
        new, tasks = asked(algorithm, state, 1, generator(seed, "ask"))
        sampled = [agent for agent, task in tasks.items() if "message" in task.values]
        assert sampled == list(new.collection.shares)
        sizes.append(len(sampled))
    observed = np.bincount(sizes, minlength=9)[:6]
    expected = 200 * stats.binom.pmf(np.arange(6), 8, 0.3)
    assert stats.chisquare(observed, expected * observed.sum() / expected.sum()).pvalue > 1e-3


def test_initial_designs_lie_in_the_regions_and_together_in_all():
    run = Run.begin(DPFTS(**SMALL, num_regions=4, num_initial=5), num_agents=6).step()
    quarters = {name: {tuple(q) for q in (h.points >= 0.5).tolist()} for name, h in run.histories().items()}
    assert all(len(q) == 1 for q in quarters.values())
    assert len(set.union(*quarters.values())) == 4


def test_an_agent_that_always_follows_itself_is_thompson_sampling():
    small = {"num_candidates": 64, "num_path_features": 32}
    dp = Run.begin(DPFTS(schedule=1.0, **small)).steps(6)
    ts = Run.begin(ThompsonSampling(**small)).steps(6)
    assert same(dp.histories(), ts.histories())
    assert dp.state.num_releases == 0, "a release that nobody would follow costs privacy for nothing"


@pytest.mark.parametrize("message", ["draw", "mean"])
def test_messages_are_short_before_they_leave_used_once_and_never_sent_on(message):
    options = {"sampling_rate": 1.0, "clip": 0.3, "message": message, "schedule": 0.0}
    run = Run.begin(DPFTS(**SMALL, **options)).steps(4)
    sent = [e.report.arrays["weights"] for e in run.exchanges]
    assert max(map(np.linalg.norm, sent)) <= 0.3
    for exchange in run.exchanges:
        for weights in exchange.task.arrays.get("weights", []):
            assert not any(np.allclose(weights, other, rtol=1e-6) for other in sent)
    assert run.state.num_releases == 3


def test_local_noise_is_twice_the_clip_and_hides_that_nothing_succeeded():
    algorithm = DPFTS(**SMALL, noise="local", noise_multiplier=1.5, clip=2.0)
    nothing = AgentState(SQUARE, Trials.empty(2))
    task = Task(Phase.TRAIN, 2, 0, 0, {}, {"message": True})
    clear = step(algorithm.summarise, task, nothing, generator(0))
    draws = [
        algorithm.protect(task, nothing, clear, uniform_from(generator(s, "s"))).arrays["weights"]
        for s in range(200)
    ]
    assert stats.kstest(np.ravel(draws) / (1.5 * 2 * 2.0), "norm").pvalue > 1e-3


# -- the budget --------------------------------------------------------------------------------


def test_a_run_stops_before_the_budget_is_exceeded():
    options = {"noise_multiplier": 2.0, "sampling_rate": 0.5, "schedule": 0.5, "max_epsilon": 2.0}
    run = Run.begin(DPFTS(**SMALL, **options), num_agents=4)
    while not run.algorithm.finished(run.state) and run.server_round < 60:
        run.step()
    spent = run.algorithm.results(run.state).privacy
    count = spent["releases"]
    assert spent["epsilon"] == pytest.approx(sampled_epsilon(2.0, 0.5, count, 1e-3))
    assert spent["epsilon"] <= 2.0 < sampled_epsilon(2.0, 0.5, count + 1, 1e-3)
    assert run.server_round == count + 1 < 60, "the last round follows the last release"
    run = Run.begin(DPFTS(**SMALL, noise_multiplier=0)).steps(3)
    assert run.algorithm.results(run.state).privacy["epsilon"] is None, "without noise none is claimed"


def test_a_spent_budget_may_also_leave_the_last_release_in_use():
    algorithm = DPFTS(**SMALL, sampling_rate=1.0, schedule=0.0, max_epsilon=5.0, when_spent="keep")
    run = Run.begin(algorithm).steps(9)
    assert not algorithm.finished(run.state)
    last = [e.task.arrays["weights"] for e in run.exchanges if e.server_round >= 7]
    assert run.state.num_releases < 6
    assert all(same(w, run.state.weights) for w in last)
    assert not any(e.report.arrays for e in run.exchanges if e.server_round >= 7)


def test_local_budgets_are_counted_by_agent_and_by_message_asked_for():
    algorithm = DPFTS(**SMALL, noise="local", noise_multiplier=3.0, sampling_rate=0.5, max_epsilon=2.0)
    run = Run.begin(algorithm, num_agents=4).steps(4, lost=("1",)).steps(12)
    counts = run.state.num_messages
    affordable = max(k for k in range(20) if sampled_epsilon(3.0, 1.0, k, 1e-3) <= 2.0)
    assert max(counts.values()) <= affordable
    asked = [e.agent for e in run.exchanges if "message" in e.task.values]
    assert counts == {agent: asked.count(agent) for agent in counts}
    assert algorithm.finished(run.state)
    assert algorithm.results(run.state).privacy["epsilon"] <= 2.0


# -- what one agent changes in the sums, by brute force over neighbouring federations ------------------
#
# Neighbours have the same registered agents and the same secret draws. In one of them an agent takes no part:
# its reports do not arrive, or it is not even present. All sums before noise are compared.

NUM_ROUNDS, NUM_FEATURES = 6, 5


def play(algorithm, agents, messages, *, silent=(), absent=()):
    """Return all sums before noise `(P, M)` of some rounds, and the standard deviations of their noise."""
    state = algorithm.init(Federation(SQUARE, agents), generator(0, "init"))
    present = [agent for agent in agents if agent not in absent]
    found = []
    for server_round in range(1, NUM_ROUNDS + 1):
        if state.collection is not None:
            stddev = algorithm.noise_multiplier * state.collection.largest * largest_norm(algorithm, SQUARE)
            variance = noise_variance(stddev, algorithm._step(SQUARE))
            found.append((algorithm._clear_sums(state), math.sqrt(variance)))
        # the noise takes a number of draws that depends on it: sample from a source of its own
        drawn, sampled = (
            algorithm.secret_draws(given, Phase.TRAIN, server_round, present, uniform_from(source))
            for given, source in (
                (state, generator(7, "draws", server_round)),
                (replace(state, collection=None), generator(7, "coins", server_round)),
            )
        )
        state = informed(state, drawn={**drawn, **sampled})
        state, tasks = algorithm.ask(state, Phase.TRAIN, server_round, present, generator(0, server_round))
        heard = {agent: task for agent, task in tasks.items() if agent not in silent}
        state = algorithm.tell(
            state, Phase.TRAIN, Replies(reports_of(heard, messages), algorithm.report_content)
        )
    return found


def largest_change(algorithm, agents, messages, **without):
    """Return the largest norm of a change over all regions, in units of the noise, times `z`."""
    whole, part = play(algorithm, agents, messages), play(algorithm, agents, messages, **without)
    assert len(whole) == len(part) == NUM_ROUNDS - 1
    return max(
        float(np.linalg.norm(one - two)) / min(stddev, other) * algorithm.noise_multiplier
        for (one, stddev), (two, other) in zip(whole, part, strict=True)
    )


def made(num_agents, num_regions, region_releases, multiplier, rate=1.0):
    algorithm = DPFTS(
        num_features=NUM_FEATURES, num_regions=num_regions, region_releases=region_releases,
        region_weight=3.0, noise_multiplier=multiplier, sampling_rate=rate, schedule=0.5, clip=0.7,
    )  # fmt: skip
    return algorithm, tuple(map(str, range(num_agents)))


@pytest.mark.parametrize(
    "case",  # agents, regions, region_releases, multiplier, sampling rate
    [(2, 1, 1, 1.0, 1), (3, 3, 3, 0.5, 1), (5, 1, 10, 4.0, 1), (5, 3, 3, 1.0, 1), (4, 3, 3, 1.0, 0.35)],
)
def test_no_agent_changes_the_sums_by_more_than_the_noise_is_made_for(case):
    algorithm, agents = made(*case)
    rng, ways = np.random.default_rng(0), ["absent"] if algorithm.sampling_rate < 1 else ["silent", "absent"]
    messages = {agent: 100 * rng.standard_normal(NUM_FEATURES) for agent in agents}
    changes = [
        largest_change(algorithm, agents, messages, **{how: (agent,)}) for agent in agents for how in ways
    ]
    assert max(changes) <= 1.0
    assert case[1] > 1 or max(changes) > 1 - 1e-6, "the noise is not larger than it has to be"


def test_an_agent_that_registers_late_counts_from_the_next_release_on():
    algorithm, agents = made(3, 1, 1, 1.0)
    state = algorithm.init(Federation(SQUARE, agents), generator(0, "init"))
    largest = []
    for server_round, present in enumerate([agents, (*agents, "9"), agents], start=1):
        state, _ = asked(algorithm, state, server_round, generator(server_round), present)
        largest.append(state.collection.largest)
    np.testing.assert_allclose(largest, [1 / 3, 1 / 4, 1 / 4])


def test_secure_sums_are_accounted_without_sampling():
    """A sample that is too small makes no release, so one that is made was likelier to hold an agent."""
    plain, secure = DPFTS(sampling_rate=0.35), DPFTS(sampling_rate=0.35, secure_sums=3)
    assert secure.epsilon(5) == DPFTS(sampling_rate=1.0).epsilon(5) > 2 * plain.epsilon(5)
    # 4 agents, samples of 3 or 4 make a release: an agent is then in it far more often than 0.35
    drawn = np.random.default_rng(0).random((100_000, 4)) < 0.35
    assert drawn[drawn.sum(axis=1) >= 3][:, 0].mean() > 0.75
