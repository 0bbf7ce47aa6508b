import numpy as np
import pytest
from contract import MIXED, SQUARE, AlgorithmContract, Run, difference, hills, leaks, same
from scipy import stats

from fbo_flower.algorithms import FTS, RandomSearch, ThompsonSampling, make_algorithm
from fbo_flower.algorithms.progress import Progress
from fbo_flower.algorithms.records import (
    AgentState,
    Federation,
    History,
    Outcome,
    Payload,
    Report,
    natural_key,
)
from fbo_flower.errors import ConfigError


class TestContract(AlgorithmContract):
    def make(self):
        return RandomSearch()


class TestContractWithOneInitialTrial(AlgorithmContract):
    def make(self):
        return RandomSearch(num_initial=1)


class Leaky(RandomSearch):
    """Sends what it must not."""

    def summarise(self, task, agent_state, rng):
        return Payload({"secret": agent_state.history.points[-1:] + 0.0})


class Forgetful(RandomSearch):
    """Does a task again when it comes again."""

    def propose(self, task, agent_state, rng):
        done = agent_state.history.trials.max(initial=-1) - (agent_state.history.next_trial - 1)
        return super().propose(task, agent_state, rng) if done == 0 else None

    def ask(self, state, phase, server_round, present, rng):
        state, tasks = super().ask(state, phase, server_round, present, rng)
        return state, {a: t.__class__(t.phase, t.round, t.trial + 1, t.num_trials) for a, t in tasks.items()}


def test_contract_catches_a_report_that_holds_a_point():
    class Case(AlgorithmContract):
        def make(self):
            return Leaky()

    with pytest.raises(AssertionError, match=r"agent 0, round 1.*reports_values"):
        Case().test_no_report_repeats_the_history()


def test_contract_catches_tasks_with_wrong_trial_ids():
    class Case(AlgorithmContract):
        def make(self):
            return Forgetful()

    with pytest.raises(AssertionError):
        Case().test_lost_reports_are_asked_for_again_and_nothing_is_done_twice()


def test_contract_catches_state_that_is_written_in_place():
    class InPlace(RandomSearch):
        def tell(self, state, phase, reports):
            new = state.advance(reports)
            state.next_trial.update(new.next_trial)
            return new

    class Case(AlgorithmContract):
        def make(self):
            return InPlace()

    with pytest.raises(AssertionError, match=r"state\.next_trial: keys .* wrote into the state"):
        Case().test_nothing_that_is_handed_in_is_changed()


def test_a_difference_is_found_where_it_is():
    reports = [Report(0, 2, arrays={"a": np.array([x])}) for x in (1.0, np.nextafter(1.0, 2.0))]
    assert difference({"x": [reports[0]]}, {"x": [reports[1]]}).startswith(
        "['x'][0].arrays['a']: float64(1,)"
    )
    assert difference(reports[0], reports[0]) == ""
    assert difference(1, 1.0, "it") == "it: a int is not a float"
    assert difference(0.0, -0.0, "it") == "it: 0.0 is not -0.0"


def test_leaks_sees_standardised_values_too():
    history = History(np.array([[0.1, 0.2], [0.3, 0.4]]), np.array([1.0, 3.0]), np.array([0, 1]))
    assert leaks(Report(0, 2, arrays={"a": np.array([9.0, 0.3])}), history)
    assert leaks(Report(0, 2, arrays={"a": np.array([3.0])}), history)
    assert not leaks(Report(0, 2, arrays={"a": np.array([0.25])}), history)


def test_points_are_uniform():
    run = Run.begin(RandomSearch(num_initial=400), num_agents=2).step()
    for history in run.histories().values():
        for axis in history.points.T:
            assert stats.kstest(axis, "uniform").pvalue > 1e-3
    assert not same(run.histories()["0"].points, run.histories()["1"].points)


def test_categories_of_a_mixed_space_are_equally_likely():
    run = Run.begin(RandomSearch(num_initial=900), space=MIXED, num_agents=1).step()
    kernels = [MIXED.decode(p)["kernel"] for p in run.histories()["0"].points]
    counts = np.unique(kernels, return_counts=True)[1]
    assert stats.chisquare(counts).pvalue > 1e-3


@pytest.mark.parametrize("other", [ThompsonSampling(), FTS(), FTS(advice="portfolio", schedule=0.0)])
def test_all_algorithms_with_one_seed_start_from_the_same_points(other):
    expected = Run.begin(RandomSearch()).step().histories()
    assert same(Run.begin(other).step().histories(), expected)


def test_progress_never_goes_back():
    progress = Progress({"a": 4}).advance({"a": Report(0, 3), "b": Report(0, 3)})
    assert progress.next_trial == {"a": 4, "b": 3}


def test_agents_are_sorted_as_people_count():
    federation = Federation(SQUARE, ("10", "b", "2", "a", "02"))
    assert federation.agents == ("02", "2", "10", "a", "b")
    assert natural_key("²")[0] == 1, "a superscript is no number"
    with pytest.raises(ConfigError, match="every id once"):
        Federation(SQUARE, ("1", "1"))


def test_failed_trials_count_as_the_worst_seen():
    history = History(np.eye(3), np.array([2.0, np.nan, 1.0]), np.arange(3), {1: "no"})
    points, values = history.observed()
    assert values.tolist() == [2.0, 1.0, 1.0]
    assert len(points) == 3
    assert [len(part) for part in History(np.eye(2), np.full(2, np.nan), np.arange(2)).observed()] == [0, 0]


def test_select_returns_the_trials_asked_for():
    history = History.prior(np.eye(2), np.array([5.0, 6.0])).extend(
        Outcome(np.eye(2), np.array([np.nan, 8.0]), np.array([0, 1]), {0: "no"})
    )
    assert history.next_trial == 2
    done = history.select(0, 1)
    assert done.trials.tolist() == [0]
    assert done.failures == {0: "no"}
    assert History.prior(np.eye(2), np.ones(2)).next_trial == 0


@pytest.mark.parametrize(
    ("name", "options", "match"),
    [
        ("nope", {}, "random, ts, fts"),
        ("random", {"nope": 1}, "num_initial=3"),
        ("random", {"num_initial": 0}, "num_initial"),
        ("random", {"num_initial": True}, "num_initial"),
        ("random", {"num_initial": 2.5}, "num_initial"),
        ("ts", {"kernel": "cosine"}, "rbf, matern52"),
        ("ts", {"min_distance": float("nan")}, "min_distance"),
        ("ts", {"y_transform": ["rank"]}, "y_transform"),
        ("fts", {"advice": {}}, "single, portfolio"),
        ("fts", {"targets": []}, "targets"),
        ("fts", {"targets": "3"}, "targets"),
        ("fts", {"targets": [3]}, "names"),
        ("fts", {"targets": 5}, "targets"),
        ("fts", {"targets": {"a": 1}}, "targets"),
        ("fts", {"lengthscale": [[1, 2], [3]]}, "lengthscale"),
        ("fts", {"lengthscale": None}, "lengthscale"),
        ("fts", {"lengthscale": [0.1, True]}, "lengthscale"),
        ("fts", {"lengthscale": "guess"}, "federated"),
        ("fts", {"lengthscale": 0}, "lengthscale"),
        ("fts", {"schedule": "first-x"}, "first-K"),
        ("fts", {"num_features": 10**6}, "num_features"),
    ],
)
def test_unusable_options_are_config_errors(name, options, match):
    with pytest.raises(ConfigError, match=match):
        make_algorithm(name, options)


def test_wrong_number_of_lengthscales_is_found_by_check():
    with pytest.raises(ConfigError, match="expected 2 numbers"):
        make_algorithm("fts", {"lengthscale": [0.1, 0.2, 0.3]}).check(SQUARE)


def test_notebook_is_a_value():
    agent_state = AgentState(SQUARE, History.empty(2))
    assert agent_state.write(a=np.ones(1)).arrays.keys() == {"a"}
    assert not agent_state.arrays


def test_hills_is_what_the_contract_needs():
    run = Run.begin(RandomSearch(), objective=hills(SQUARE, noise=0.0)).step()
    assert all(np.ptp(h.values) > 0 for h in run.histories().values())
