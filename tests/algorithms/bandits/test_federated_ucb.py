"""Fed1-UCB and FN-UCB over Flower: the plain driver's regrets, drop-outs and what travels."""

import numpy as np
from contract import Run

from fbo_flower.algorithms import FNUCB, Fed1UCB
from fbo_flower.algorithms.bandits import base
from fbo_flower.algorithms.bandits.fn_ucb import num_weights
from fbo_flower.algorithms.records import Federation, Phase, Report
from fbo_flower.numerics.acquisition.feature_models import unpack_symmetric
from fbo_flower.numerics.bandits import ucb
from fbo_flower.space import Float, SearchSpace

LINE = SearchSpace({"x": Float(0.0, 1.0)})


def test_agents_of_fed1_ucb_pull_arms_in_different_orders_that_a_later_task_continues():
    run, once = (
        Run.begin(Fed1UCB(budget=400, arms_seed=3, max_evaluations_per_round=most)) for most in (30, 400)
    )
    run.steps(14)
    once.steps(1)
    orders = {agent: list(dict.fromkeys(map(tuple, log.points))) for agent, log in run.histories().items()}
    assert len({tuple(order) for order in orders.values()}) == 3
    assert len(set().union(*orders.values())) > 1.5 * len(orders["0"])
    for agent, log in once.histories().items():
        assert list(dict.fromkeys(map(tuple, log.points))) == orders[agent]


def test_fn_ucb_exchanges_only_when_an_agent_has_seen_enough():
    every, rare = (
        Run.begin(FNUCB(budget=16, threshold=t, arms_seed=1), num_agents=2).steps(40) for t in (0.0, 30.0)
    )
    assert every.algorithm.finished(every.state)
    assert rare.algorithm.finished(rare.state)
    assert every.state.exchanges >= 15
    assert 1 <= rare.state.exchanges < 8
    quiet = [e for e in rare.exchanges if not e.report.arrays]
    assert len(quiet) > len(rare.exchanges) / 2
    asked = [e for e in rare.exchanges if e.task.values.get("send")]
    assert all("gram" in e.report.arrays and e.task.num_trials == 0 for e in asked)


def test_fn_ucb_sends_sums_and_never_an_inverse():
    run = Run.begin(FNUCB(budget=12, arms_seed=1), num_agents=3).steps(12)
    names = {name for e in run.exchanges for name in e.report.arrays}
    assert names == {"gram", "response", "weights"}
    size = num_weights(run.algorithm.neural_options(), 2)
    last = run.exchanges[-1]
    assert last.report.arrays["gram"].shape == (size * (size + 1) // 2,)
    points = base.points(1, 2)
    features = ucb.neural_features(points, run.algorithm.neural_options(), np.random.default_rng([1, 4]))
    history = run.histories()["2"]
    rows = [int(np.flatnonzero((points == p).all(axis=1))[0]) for p in history.points]
    g = features.gradients[rows]
    np.testing.assert_allclose(unpack_symmetric(last.report.arrays["gram"], size), g.T @ g, atol=1e-9)
    np.testing.assert_allclose(last.report.arrays["response"], g.T @ history.values, atol=1e-9)


def test_the_server_draws_arms_of_its_own_unless_they_are_named():
    federation = Federation(LINE, ("0", "1"))
    seeds = {Fed1UCB().init(federation, np.random.default_rng(s)).arms_seed for s in range(5)}
    assert len(seeds) == 5
    assert Fed1UCB(arms_seed=7).init(federation, np.random.default_rng(1)).arms_seed == 7
    assert len(base.points(7, 1)) == base.num_arms(1) == 20
    assert len(base.points(7, 2)) == base.num_arms(2) == 400
    assert len(base.points(7, 5)) == base.num_arms(5) == 1000


def test_fed1_ucb_counts_a_latecomer_in_the_phase_that_is_open():
    algorithm = Fed1UCB(budget=5000, arms_seed=3, noise_stddev=0.3)
    rng, length = np.random.default_rng(0), ucb.phase_length(5000)
    state = algorithm.init(Federation(LINE, ("0", "1")), rng)
    state, tasks = algorithm.ask(state, Phase.TRAIN, 1, ["0", "1"], rng)
    state = algorithm.tell(state, Phase.TRAIN, {a: told(t, length) for a, t in tasks.items()})
    state, tasks = algorithm.ask(state, Phase.TRAIN, 2, ["0", "1", "2"], rng)
    assert state.phase == 0
    assert set(tasks) == {"2"}  # the others wait
    assert tasks["2"].num_trials == length * 20
    state = algorithm.tell(state, Phase.TRAIN, {a: told(t, length) for a, t in tasks.items()})
    state, tasks = algorithm.ask(state, Phase.TRAIN, 3, ["0", "1", "2"], rng)
    assert state.phase == 1
    assert set(tasks) == {"0", "1", "2"}
    assert len(state.active) < 20


def told(task, pulls):
    active = task.arrays["arms"]
    counts = np.full(len(active), pulls, dtype=np.int64)
    owed = np.zeros(1, dtype=np.int64)
    return Report(task.trial, task.num_trials, 0, {"means": active / 20.0, "counts": counts, "owed": owed})
