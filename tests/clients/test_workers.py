"""Several trials at once: the same results, journalled as they end, and workers that die or take too long."""

import math
import os
import signal
import threading
import time
from collections import Counter
from dataclasses import replace

import cloudpickle
import numpy as np
import pytest
import threadpoolctl
from agents import SPACE, node, packed, task
from contract import same
from flwr.app import RecordDict

from fbo_flower.algorithms import ThompsonSampling
from fbo_flower.algorithms.records import Phase, Task, Trials
from fbo_flower.clients import client_app
from fbo_flower.clients.agent import TuningAgent
from fbo_flower.clients.evaluator import EvaluationCache, ObjectiveEvaluator, Parallel, TaskContext
from fbo_flower.clients.memory import StateMemory
from fbo_flower.clients.objective import Job, ObjectiveContext
from fbo_flower.clients.pruning import CurveBook, Pruning
from fbo_flower.clients.workers import Worker, WorkerPool, pickled, pool_of
from fbo_flower.errors import ConfigError, WrongTypeError
from fbo_flower.storage import agent_journal
from fbo_flower.storage.agent_journal import AgentJournal

TS = ThompsonSampling(num_initial=4, num_candidates=64, num_path_features=32, trials_per_round=4)


def evaluate(query, first_trial, objective, parallel, cache=None, book=None):
    asked, memory = Task(Phase.TRAIN, 1, first_trial, 1), StateMemory(RecordDict())
    make_book = CurveBook if book is None else lambda: book
    context = TaskContext("3", "s1", 3, asked, "t", 7, memory, {}, {}, True, make_book)
    outcome = ObjectiveEvaluator(objective, SPACE, context, cache, parallel)(query, first_trial)
    assert (outcome.times[:, 0] <= outcome.times[:, 1]).all()
    return replace(outcome, times=None)


class Noisy:
    """Draws from the trial's generator, and fails below 0.1."""

    def __call__(self, config, context):
        if config["x"] < 0.1:
            raise ValueError("too small")
        return float(config["x"] + context.rng.normal())


class Repeating(Noisy):
    """Evaluates a point many times in one call."""

    def repeated(self, config, context, repeats):
        return context.rng.normal(size=repeats)


POINTS = np.array([[0.2, 0.1], [0.05, 0.5], [0.9, 0.9], [0.2, 0.1], [0.05, 0.5]])
NOISY, REPEATING = Noisy(), Repeating()  # the same objects: their workers are started once


@pytest.mark.parametrize("repeats", [None, [3, 2, 1, 1, 4]])
@pytest.mark.parametrize(("objective", "cached"), [(NOISY, True), (REPEATING, False)])
def test_outcomes_are_those_of_one_evaluation_after_the_other(repeats, objective, cached):
    query = Trials(POINTS, pulls=None if repeats is None else np.array(repeats, dtype=np.int64))
    caches = [EvaluationCache() if cached else None for _ in range(2)]
    one, many = (
        evaluate(query, 5, objective, Parallel(at_once), cache)
        for at_once, cache in zip((1, 2), caches, strict=True)
    )
    assert same(one, many)
    assert same(*caches)
    if cached:  # a point that failed is evaluated again
        assert (caches[0].num_evaluations, len(caches[0].values)) == (4, 2)
    if cached and repeats is not None:  # an evaluation stands for all of its row
        assert one.counts.tolist() == np.where(np.isnan(one.values), 0, repeats).tolist()


def test_a_row_of_pulls_has_the_mean_the_number_and_the_squared_deviations_of_those_that_succeeded():
    values = iter([1.0, math.nan, 3.0, 8.0, 2.0, 4.0, -0.0, -0.0, -0.0])
    query = Trials(np.full((4, 2), 0.5), pulls=np.array([4, 2, 2, 1]))
    outcome = evaluate(query, 0, lambda config, context: next(values), Parallel())
    assert [str(value) for value in outcome.values] == ["4.0", "3.0", "0.0", "0.0"]
    assert (outcome.counts.tolist(), outcome.deviations.tolist()) == ([3, 2, 2, 1], [26.0, 2.0, 0.0, 0.0])
    assert outcome.reasons == {0: "expected a finite number, got nan"}


def test_repeated_evaluations_of_a_point_do_not_stop_early():
    """A mean over partial values would be biased."""
    book = CurveBook(Pruning(min_trials=1, margin=None))
    curve = np.array([[0.0], [5.0]])
    book.add(Trials(np.zeros((1, 2)), np.array([5.0]), np.array([0]), curve=curve))

    def curved(config, context):
        context.report(0, 0.1)
        context.should_stop()
        return 0.5

    queries = (Trials(np.full((1, 2), 0.5), pulls=pulls) for pulls in (None, np.array([20])))
    stopped = [evaluate(query, 1, curved, Parallel(), book=book).stopped for query in queries]
    assert stopped == [np.array([0]), None]


def test_the_operator_overrides_the_app():
    assert Parallel.read({}, Parallel(3, 5.0)) == Parallel(3, 5.0)
    assert Parallel.read({"num_parallel": 2}, Parallel(3, 5.0)) == Parallel(2, 5.0)
    assert Parallel.read({"trial_timeout": 9}, Parallel(3, 5.0)) == Parallel(3, 9)
    assert [p.needs_workers for p in (Parallel(), Parallel(2), Parallel(1, 0.5))] == [False, True, True]


# -- an agent that is killed ------------------------------------------------------------------------------


def noting(path):
    """An objective that notes its trials in a file."""

    def objective(config, context):
        with open(path, "a") as stream:
            stream.write(f"{context.trial} ")
        return -((config["x"] - 0.3) ** 2) - (config["y"] - 0.7) ** 2 + 1e-3 * context.trial

    return objective


def test_an_agent_killed_within_a_batch_repeats_only_what_was_under_way(tmp_path, monkeypatch):
    monkeypatch.setattr(agent_journal, "COMMIT_SECONDS", 0.0)  # every evaluation, as if it had taken a second
    first, second = (packed(TS, task(trial, 4)) for trial in (0, 4))
    append, stored = AgentJournal.append, []

    def dying(self, study, key, evaluation):
        append(self, study, key, evaluation)
        stored.append(str(evaluation.trials[0]))
        if len(stored) == 6:
            raise KeyboardInterrupt

    def answer(name, num_parallel, *messages):
        context = node(tmp_path / f"{name}.db", num_parallel=num_parallel)
        agent = TuningAgent(noting(tmp_path / name), SPACE, context, seed=4, disclose="trials")
        return [agent.answer(message) for message in messages][-1]

    expected = answer("whole", 2, first, second)
    with monkeypatch.context() as patch:
        patch.setattr(AgentJournal, "append", dying)
        with pytest.raises(KeyboardInterrupt):
            answer("killed", 2, first, second)
    # another setting of the operator changes nothing about the batch that has begun
    reply = answer("killed", 1, second)
    calls = Counter((tmp_path / "killed").read_text().split())
    assert sorted(calls) == list("01234567")
    assert {calls[trial] for trial in stored} == {1}
    assert calls.total() <= 8 + 2
    assert reply.config == expected.config
    arrays = [{n: a for n, a in r.arrays.items() if "times" not in n} for r in (reply, expected)]
    assert same(*arrays)


# -- simulations ------------------------------------------------------------------------------------------


# -- the pool ---------------------------------------------------------------------------------------------


def jobs(*xs):
    contexts = (ObjectiveContext("3", 3, trial, 1, np.random.default_rng(trial)) for trial in range(len(xs)))
    rows = (Trials(np.zeros((1, 2)), np.zeros(1), np.array([trial])) for trial in range(len(xs)))
    return [Job(row, {"x": x}, [context]) for row, x, context in zip(rows, xs, contexts, strict=True)]


def ran(pool, *xs, at_once=2):
    """Return the values of some jobs, why they failed, and their errors."""
    ended = dict(pool.run(jobs(*xs), at_once, 0.0))
    rows = [ended[number][0] for number in range(len(xs))]
    assert [row.trials[0] for row in rows] == list(range(len(xs)))
    reasons = ["".join(row.reasons.values()) for row in rows]
    return [row.values[0] for row in rows], reasons, [ended[number][1] for number in range(len(xs))]


def troubled(meeting):
    """Return an objective that dies, fails, hangs, waits or tells of its process, as `x` says."""

    def objective(config, context):
        match config["x"]:
            case -1.0:
                os._exit(3)
            case -2.0:
                os.kill(os.getpid(), signal.SIGSEGV)
            case -3.0:
                raise ValueError("no such\nvalue")
            case -5.0:
                (meeting / f"{context.trial}").touch()
                while not all((meeting / str(trial)).exists() for trial in range(3)):
                    time.sleep(0.01)
                return float(os.getpid())
            case -6.0:
                np.ones((2, 2)) @ np.ones((2, 2))
                return float(max(info["num_threads"] for info in threadpoolctl.threadpool_info()))
            case -8.0:
                return None
            case -7.0:
                return float(context.rng.random() + context.trial)
        return float(config["x"])

    return objective


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    """A pool of workers; a function in a function is pickled by value."""
    pool = WorkerPool(pickled(troubled(tmp_path_factory.mktemp("meeting"))))
    yield pool
    pool.close()


def test_a_worker_that_dies_costs_its_own_trial_and_others_have_the_values_that_they_would_have_here(pool):
    values, reasons, errors = ran(pool, 1e-300, -1.0, -3.0, -2.0, -7.0, -6.0)
    drawn = np.random.default_rng(4).random() + 4
    np.testing.assert_array_equal(values, [1e-300, np.nan, np.nan, np.nan, drawn, 1.0], "one thread of BLAS")
    assert reasons == [
        "", "the worker process ended with status 3 while it evaluated the trial",
        "ValueError: no such\\nvalue",
        "the worker process was ended by SIGSEGV while it evaluated the trial", "", "",
    ]  # fmt: skip
    assert [number for number, error in enumerate(errors) if error] == [2]
    assert "in objective" in errors[2][1]
    assert len(pool.idle) <= 2
    with pytest.raises(WrongTypeError, match="got None"):  # each trial would return it
        ran(pool, -8.0)


def slow_left(config, context):
    if config["x"] < 0.5:
        time.sleep(600)
    return config["x"]


def test_a_trial_that_takes_too_long_is_ended_and_others_go_on():
    outcome = evaluate(Trials(np.array([[0.25, 0.0], [0.75, 0.0]])), 0, slow_left, Parallel(1, 1.0))
    assert outcome.reasons == {0: "took longer than 1 s, the trial_timeout; its process was killed"}
    assert outcome.values[1] == 0.75


def test_trials_that_wait_for_each_other_are_under_way_at_once_in_other_processes(pool):
    processes = set(ran(pool, -5.0, -5.0, -5.0, at_once=3)[0])
    assert len(processes) == 3
    assert float(os.getpid()) not in processes


def test_an_objective_that_cannot_be_pickled_or_loaded_is_an_error_of_the_settings():
    lock = threading.Lock()
    for given in ({"num_parallel": 2}, {"trial_timeout": 2.0}):
        with pytest.raises(ConfigError, match=r"objective: expected what can be pickled.*lock"):
            client_app(lambda config, context: float(lock.locked()), SPACE, **given)
    with pytest.raises(ConfigError, match=r"a worker process can load, .* UnpicklingError"):
        ran(WorkerPool(b"no pickle"), 0.0)
    assert pool_of(NOISY) is pool_of(NOISY) is not pool_of(REPEATING)


def test_a_worker_ends_within_an_evaluation_when_its_agent_is_gone():
    worker = Worker(pickled(lambda config, context: time.sleep(600)))
    (job,) = jobs(0.5)
    assert worker.answer(job) is None, "it is ready"
    worker.send(cloudpickle.dumps(job))
    worker.pipe.close()  # as the system does when the agent's process is killed
    assert worker.process.wait(timeout=60) == -signal.SIGKILL
