"""DP-FTS: the sums that leave the server, the noise on them, and a budget that is never exceeded."""

from __future__ import annotations

import numpy as np
import pytest
from contract import MIXED, SQUARE, Run, same, step
from scipy import stats

from fbo_flower.algorithms import DPFTS, ThompsonSampling, make_algorithm
from fbo_flower.algorithms.records import AgentState, Federation, History, Phase, Report, Task
from fbo_flower.errors import ConfigError
from fbo_flower.numerics.discrete_noise import uniform_from
from fbo_flower.numerics.privacy import sampled_epsilon
from fbo_flower.numerics.seeding import generator
from fbo_flower.numerics.surrogates import rff
from fbo_flower.simulation import simulate

SMALL = {"num_candidates": 64, "num_path_features": 32, "num_features": 12}
# what an option could break; the whole contract is for the defaults, and in slow tests for WHOLE
AGENTS = tuple(str(i) for i in range(8))


def asked(algorithm, state, server_round, rng, present=AGENTS):
    """Draw in secret, then ask."""
    draws = algorithm.secret_draws(state, Phase.TRAIN, server_round, present, uniform_from(rng))
    state = algorithm.with_draws(state, draws)
    return algorithm.ask(state, Phase.TRAIN, server_round, present, rng)


def released(algorithm, messages, seed=0):
    """The sums after every agent has sent its message, and the state before they were made."""
    state = algorithm.init(Federation(SQUARE, AGENTS), generator(0, "init"))
    state, tasks = asked(algorithm, state, 1, generator(0, "one"))
    reports = {
        agent: Report(0, 3, arrays={"weights": messages[agent]} if "message" in task.values else {})
        for agent, task in tasks.items()
    }
    told = algorithm.tell(state, Phase.TRAIN, reports)
    return asked(algorithm, told, 2, generator(seed, "two"))[0].weights, told


# -- the sums ----------------------------------------------------------------------------------


def test_without_noise_and_sampling_the_sum_is_the_mean_of_clipped_messages() -> None:
    algorithm = DPFTS(**SMALL, noise_multiplier=0, sampling_rate=1.0, clip=2.0)
    draws = np.random.default_rng(0)
    messages = {agent: draws.standard_normal(12) for agent in AGENTS}
    clipped = [m * min(1.0, 2.0 / np.linalg.norm(m)) for m in messages.values()]
    sums, _ = released(algorithm, messages)
    np.testing.assert_allclose(sums, [np.mean(clipped, axis=0)], atol=8 * 2.0**-39)  # steps of the grid


def test_early_sums_are_of_those_who_explored_the_region_and_late_ones_of_all() -> None:
    messages = {agent: np.eye(12)[int(agent)] for agent in AGENTS}
    options = SMALL | {"noise_multiplier": 0, "sampling_rate": 1.0, "clip": 10.0, "num_regions": 4}
    sums, _ = released(DPFTS(**options, region_weight=60.0), messages)
    for region in range(4):  # agents 0 and 4 explored region 0, and so on
        expected = (np.arange(12) % 4 == region) & (np.arange(12) < 8)
        np.testing.assert_allclose(sums[region], expected / 2, atol=1e-12)
    sums, _ = released(DPFTS(**options, region_weight=0.0), messages)
    np.testing.assert_allclose(sums, np.tile(np.arange(12) < 8, (4, 1)) / 8, atol=1e-12)


@pytest.mark.parametrize("options", [{}, {"num_regions": 4}])
def test_no_agent_changes_the_sums_by_more_than_the_noise_is_made_for(options: dict) -> None:
    """The noise is `z` times the largest change: measured by leaving out each agent, at its worst message."""
    algorithm = DPFTS(**SMALL, **options, noise_multiplier=0, sampling_rate=1.0, clip=3.0)
    draws = np.random.default_rng(1)
    messages = {agent: 50 * draws.standard_normal(12) for agent in AGENTS}
    whole, _ = released(algorithm, messages)
    changes = []
    for agent in AGENTS:
        without, _ = released(algorithm, messages | {agent: np.zeros(12)})
        changes.append(np.linalg.norm(whole - without))
    noisy = DPFTS(**SMALL, **options, noise_multiplier=1.0, sampling_rate=1.0, clip=3.0)
    draws_of_noise = [released(noisy, messages, seed)[0] - whole for seed in range(150)]
    stddev = float(np.std(draws_of_noise))
    assert stddev == pytest.approx(max(changes), rel=0.07)
    flat = np.ravel(draws_of_noise) / max(changes)
    assert stats.kstest(flat, "norm").pvalue > 1e-3
    assert stats.kstest(flat * 1.2, "norm").pvalue < 1e-3  # negative control


def test_a_liar_with_a_long_message_counts_like_a_short_one() -> None:
    algorithm = DPFTS(**SMALL, noise_multiplier=0, sampling_rate=1.0)
    honest = {agent: np.zeros(12) for agent in AGENTS}
    sums, _ = released(algorithm, honest | {"3": np.full(12, 1e9)})
    assert np.linalg.norm(sums) <= 1 / 8


def test_agents_are_sampled_by_independent_coins() -> None:
    algorithm = DPFTS(**SMALL, sampling_rate=0.3)
    state = algorithm.init(Federation(SQUARE, AGENTS), generator(0, "init"))
    sizes = []
    for seed in range(400):
        new, tasks = asked(algorithm, state, 1, generator(seed, "ask"))
        sampled = [agent for agent, task in tasks.items() if "message" in task.values]
        assert sampled == list(new.collection.shares)
        sizes.append(len(sampled))
    observed = np.bincount(sizes, minlength=9)[:6]
    expected = 400 * stats.binom.pmf(np.arange(6), 8, 0.3)
    assert stats.chisquare(observed, expected * observed.sum() / expected.sum()).pvalue > 1e-3


def test_messages_are_used_once_and_never_sent_on() -> None:
    run = Run.begin(DPFTS(**SMALL, sampling_rate=1.0, schedule=0.0)).steps(5)
    sent = [e.report.arrays["weights"] for e in run.exchanges if e.report.arrays]
    for exchange in run.exchanges:
        for weights in exchange.task.arrays.get("weights", []):
            assert not any(np.allclose(weights, other, rtol=1e-6) for other in sent)
    assert run.state.num_releases == 4


# -- the agents --------------------------------------------------------------------------------


def test_initial_designs_lie_in_the_regions_and_together_in_all() -> None:
    run = Run.begin(DPFTS(**SMALL, num_regions=4, num_initial=5), num_agents=6).step()
    quarters = {name: {tuple(q) for q in (h.points >= 0.5).tolist()} for name, h in run.histories().items()}
    assert all(len(q) == 1 for q in quarters.values())
    assert len(set.union(*quarters.values())) == 4


def test_discrete_parameters_are_not_cut() -> None:
    run = Run.begin(DPFTS(**SMALL, num_regions=2, num_initial=30), num_agents=2, space=MIXED).step()
    for history in run.histories().values():
        kinds = {MIXED.decode(p)["kernel"] for p in history.points}
        assert kinds == {"rbf", "linear", "poly"}


def test_following_the_sums_means_going_where_the_sum_of_the_region_is_largest() -> None:
    algorithm = DPFTS(**(SMALL | {"num_candidates": 512}), num_regions=2, min_distance=0.0)
    features = rff.draw_features(12, 0.5, 2, np.random.default_rng(2))
    weights = np.random.default_rng(3).standard_normal((2, 12))
    arrays = {"frequencies": features.frequencies, "phases": features.phases, "weights": weights}
    agent_state = AgentState(SQUARE, History(np.array([[0.5, 0.5]] * 3), np.ones(3), np.arange(3)))
    point = step(
        algorithm.propose, Task(Phase.TRAIN, 2, 3, 1, arrays), agent_state, generator(0, "propose")
    ).points
    grid = np.stack(np.meshgrid(*[np.linspace(0, 1, 101)] * 2), axis=-1).reshape(-1, 2)
    best = np.where(grid[:, 0] < 0.5, features(grid) @ weights[0], features(grid) @ weights[1]).max()
    region = int(point[0, 0] >= 0.5)
    assert (features(point) @ weights[region]).item() >= best - 1e-3


def test_an_agent_that_always_follows_itself_is_thompson_sampling() -> None:
    small = {"num_candidates": 64, "num_path_features": 32}
    dp = Run.begin(DPFTS(schedule=1.0, **small)).steps(6)
    ts = Run.begin(ThompsonSampling(**small)).steps(6)
    assert same(dp.histories(), ts.histories())
    assert dp.state.num_releases == 0, "a release that nobody would follow costs privacy for nothing"


def test_messages_are_short_also_before_they_leave() -> None:
    for message in ("draw", "mean"):
        run = Run.begin(DPFTS(**SMALL, sampling_rate=1.0, clip=0.3, message=message)).steps(4)
        norms = [np.linalg.norm(e.report.arrays["weights"]) for e in run.exchanges]
        assert max(norms) <= 0.3


def test_the_mean_is_that_of_many_draws() -> None:
    points = np.random.default_rng(0).random((6, 2))
    agent_state = AgentState(SQUARE, History(points, points.sum(axis=1), np.arange(6)))
    features = rff.draw_features(12, 0.5, 2, np.random.default_rng(1))
    arrays = {"frequencies": features.frequencies, "phases": features.phases}
    task = Task(Phase.TRAIN, 2, 6, 0, arrays, {"message": True})
    mean, draw = (DPFTS(**SMALL, clip=100.0, message=m) for m in ("mean", "draw"))
    nu = step(mean.summarise, task, agent_state, generator(0)).arrays["weights"]
    draws = np.array(
        [step(draw.summarise, task, agent_state, generator(s, "s")).arrays["weights"] for s in range(600)]
    )
    np.testing.assert_allclose(nu, draws.mean(axis=0), atol=5 / np.sqrt(600))


def test_local_noise_is_twice_the_clip_and_hides_that_nothing_succeeded() -> None:
    algorithm = DPFTS(**SMALL, noise="local", noise_multiplier=1.5, clip=2.0)
    nothing = AgentState(SQUARE, History.empty(2))
    task = Task(Phase.TRAIN, 2, 0, 0, {}, {"message": True})
    clear = step(algorithm.summarise, task, nothing, generator(0))
    draws = [
        algorithm.protect(task, nothing, clear, uniform_from(generator(s, "s"))).arrays["weights"]
        for s in range(200)
    ]
    assert stats.kstest(np.ravel(draws) / (1.5 * 2 * 2.0), "norm").pvalue > 1e-3


# -- the budget --------------------------------------------------------------------------------


def test_a_run_stops_before_the_budget_is_exceeded() -> None:
    options = {"noise_multiplier": 2.0, "sampling_rate": 0.5, "schedule": 0.5, "max_epsilon": 2.0}
    study = simulate(
        "gp-samples",
        agents=4,
        algorithm=make_algorithm("dp-fts", {**SMALL, **options, "num_candidates": 16}),
        num_rounds=60,
        engine="inline",
    )
    (run,) = study.settings["runs"]
    spent = run["privacy"]
    count = spent["releases"]
    assert spent["epsilon"] == pytest.approx(cost_of(count, 0.5, 2.0))
    assert spent["epsilon"] <= 2.0 < cost_of(count + 1, 0.5, 2.0)
    assert len(study.rounds) == count + 1 < 60, "the last round follows the last release"
    assert run["status"] == "finished"


def test_a_spent_budget_may_also_leave_the_last_release_in_use() -> None:
    algorithm = DPFTS(**SMALL, sampling_rate=1.0, schedule=0.0, max_epsilon=5.0, when_spent="keep")
    run = Run.begin(algorithm).steps(9)
    assert not algorithm.finished(run.state)
    last = [e.task.arrays["weights"] for e in run.exchanges if e.server_round >= 7]
    assert run.state.num_releases < 6
    assert all(same(w, run.state.weights) for w in last)
    assert not any(e.report.arrays for e in run.exchanges if e.server_round >= 7)


def test_local_budgets_are_counted_by_agent_and_by_message_asked_for() -> None:
    algorithm = DPFTS(**SMALL, noise="local", noise_multiplier=3.0, sampling_rate=0.5, max_epsilon=2.0)
    run = Run.begin(algorithm, num_agents=4).steps(6, lost=("1",)).steps(14)
    counts = run.state.num_messages
    affordable = max(k for k in range(20) if cost_of(k, 1.0, 3.0) <= 2.0)
    assert max(counts.values()) <= affordable
    asked = [e.agent for e in run.exchanges if "message" in e.task.values]
    assert counts == {agent: asked.count(agent) for agent in counts}
    assert algorithm.finished(run.state)
    assert algorithm.results(run.state).privacy["epsilon"] <= 2.0


def test_without_noise_no_privacy_is_claimed() -> None:
    run = Run.begin(DPFTS(**SMALL, noise_multiplier=0)).steps(3)
    assert run.algorithm.results(run.state).privacy["epsilon"] is None
    with pytest.raises(ConfigError, match="max_epsilon"):
        Run.begin(DPFTS(noise_multiplier=0, max_epsilon=5.0))


def cost_of(count: int, rate: float, multiplier: float) -> float:
    """Epsilon at delta 1e-3 after equal releases; `tests/numerics` compares the account with exact values."""
    return sampled_epsilon(multiplier, rate, count, 1e-3)
