"""Several trials at once: the same results, journalled as they end, and workers that die or take too long."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from agents import SPACE, node, packed, task
from contract import same
from flwr.app import RecordDict
from grouped import grouped

from fbo_flower import wire
from fbo_flower.algorithms import ExpectedImprovement, ThompsonSampling, make_algorithm
from fbo_flower.algorithms.records import Outcome, Phase, Query, Task
from fbo_flower.clients import client_app
from fbo_flower.clients.agent import TuningAgent
from fbo_flower.clients.evaluator import EvaluationCache, ObjectiveEvaluator, Parallel, TaskContext
from fbo_flower.clients.memory import StateMemory
from fbo_flower.clients.objective import ObjectiveContext
from fbo_flower.clients.workers import Ended, Job, WorkerPool, pickled, pool_of
from fbo_flower.errors import ConfigError
from fbo_flower.simulation import Agents, simulate
from fbo_flower.storage import agent_journal
from fbo_flower.storage.agent_journal import AgentJournal, Evaluation

EI = ExpectedImprovement(num_initial=4, num_candidates=64, trials_per_round=4)
TS = ThompsonSampling(num_initial=4, num_candidates=64, num_path_features=32, trials_per_round=4)


def message(algorithm: Any, trial: int, num_trials: int = 4) -> wire.Packed:
    return packed(algorithm, task(trial, num_trials), study="s1")


def evaluate(
    query: Query, first_trial: int, objective: Any, parallel: Parallel, cache: Any = None
) -> Outcome:
    memory = StateMemory(RecordDict())
    task = Task(Phase.TRAIN, 1, first_trial, 1)
    context = TaskContext("3", "s1", 3, task, "t", 7, memory, {}, {}, True)
    outcome = ObjectiveEvaluator(objective, SPACE, context, cache, parallel)(query, first_trial)
    assert set(context.times) == set(outcome.trials.tolist())
    return outcome


class Noisy:
    """Draws from the trial's generator, and fails below 0.1."""

    def __call__(self, config: Any, context: Any) -> float:
        if config["x"] < 0.1:
            raise ValueError("too small")
        return float(config["x"] + context.rng.normal())


class Repeating(Noisy):
    """Evaluates a point many times in one call."""

    def repeated(self, config: Any, context: Any, repeats: int) -> Any:
        return context.rng.normal(size=repeats)


POINTS = np.array([[0.2, 0.1], [0.05, 0.5], [0.9, 0.9], [0.2, 0.1], [0.05, 0.5]])


@pytest.mark.parametrize("repeats", [None, [3, 2, 1, 1, 4]])
@pytest.mark.parametrize("kind", [Noisy, Repeating])
@pytest.mark.parametrize("cached", [False, True])
def test_outcomes_are_those_of_one_evaluation_after_the_other(repeats: Any, kind: Any, cached: bool) -> None:
    query = Query(POINTS, None if repeats is None else np.array(repeats, dtype=np.int64))
    caches = [EvaluationCache() if cached else None for _ in range(2)]
    one = evaluate(query, 5, kind(), Parallel(1), caches[0])
    many = evaluate(query, 5, kind(), Parallel(3), caches[1])
    assert same(one, many)
    assert list(one.failures) == list(many.failures)
    assert same(caches[0], caches[1])
    assert cached is False or list(caches[0].values) == list(caches[1].values)


def test_with_a_timeout_one_trial_at_a_time_runs_in_a_worker() -> None:
    outcome = evaluate(
        Query(POINTS[:2]), 0, lambda config, context: float(os.getpid()), Parallel(1, trial_timeout=600.0)
    )
    assert os.getpid() not in outcome.values
    assert outcome.values[0] == outcome.values[1]


def test_the_operator_overrides_the_app() -> None:
    assert Parallel.read({}, Parallel(3, 5.0)) == Parallel(3, 5.0)
    assert Parallel.read({"num_parallel": 2}, Parallel(3, 5.0)) == Parallel(2, 5.0)
    assert Parallel.read({"trial_timeout": 9}, Parallel(3, 5.0)) == Parallel(3, 9)
    for wrong in ({"num_parallel": 0}, {"num_parallel": 1.5}, {"trial_timeout": -1.0}, {"num_parallel": "2"}):
        with pytest.raises(ConfigError, match=next(iter(wrong))):
            Parallel.read(wrong, Parallel())


# -- an agent that is killed ------------------------------------------------------------------------------


@pytest.fixture
def committing(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let every evaluation be committed, as if it had taken a second."""
    monkeypatch.setattr(agent_journal, "COMMIT_SECONDS", 0.0)
    return


def noting(directory: Path, killer: int | None = None) -> Any:
    """An objective that notes its trials. Trial `killer` kills the agent once all others are journalled."""

    def objective(config: dict[str, Any], context: Any) -> float:
        import os
        import signal
        import time
        from pathlib import Path

        here = Path(directory)
        with (here / "calls").open("a") as stream:
            stream.write(f"{context.trial} ")
        if context.trial == killer and not (here / "killed").exists():
            while len(list(here.glob("journalled-*"))) < 3:
                time.sleep(0.01)
            (here / "killed").touch()
            os.kill(os.getppid(), signal.SIGKILL)
            while True:  # ends with its agent
                time.sleep(0.01)
        return -((config["x"] - 0.3) ** 2) - (config["y"] - 0.7) ** 2 + 1e-3 * context.trial

    return objective


@pytest.mark.usefixtures("committing")
@pytest.mark.parametrize(("algorithm", "after"), [(EI, 4), (TS, 1)], ids=["ei", "ts"])
def test_an_agent_killed_within_a_batch_repeats_only_what_was_under_way(
    algorithm: Any, after: int, tmp_path: Path
) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    whole.mkdir()
    killed.mkdir()
    expected = None
    for directory, killer in ((whole, None), (killed, 5)):
        agent = TuningAgent(
            noting(directory, killer), SPACE, node(directory / "a.db"), seed=4, disclose="trials",
            num_parallel=4,
        )  # fmt: skip
        agent.answer(message(algorithm, 0))
        if killer is None:
            expected = agent.answer(message(algorithm, 4))
            continue
        process = os.fork()
        if process == 0:
            die_when_told(agent, message(algorithm, 4), directory)
        _, status = os.waitpid(process, 0)
        assert os.WIFSIGNALED(status)
        assert os.WTERMSIG(status) == signal.SIGKILL
    with AgentJournal(killed / "a.db", "3") as journal:
        stored = [e.trial for e in journal.evaluations("s1")]
    assert stored[:4] == sorted(stored[:4]) or sorted(stored[:4]) == [0, 1, 2, 3]
    assert sorted(stored[4:]) == [4, 6, 7]
    # another setting of the operator changes nothing about the batch that has begun
    resumed = TuningAgent(
        noting(killed, 5), SPACE, node(killed / "a.db", num_parallel=after), seed=4, disclose="trials"
    )
    reply = resumed.answer(message(algorithm, 4))
    assert expected is not None
    assert sorted((killed / "calls").read_text().split()) == list("012345567")
    assert without_times(reply) == without_times(expected)


def die_when_told(agent: TuningAgent, task: wire.Packed, directory: Path) -> None:
    """Answer a task in a forked process, and say which evaluations the journal holds."""
    append = AgentJournal.append

    def noted(self: AgentJournal, study: str, key: str, evaluation: Evaluation) -> None:
        append(self, study, key, evaluation)
        (directory / f"journalled-{evaluation.trial}").touch()

    AgentJournal.append = noted  # type: ignore[method-assign]
    try:
        agent.answer(task)
    finally:
        os._exit(1)


def without_times(reply: wire.Packed) -> Any:
    arrays = {name: array.tobytes() for name, array in reply.arrays.items() if "times" not in name}
    return arrays, {k: v for k, v in reply.config.items()}


def test_evaluations_that_end_out_of_order_are_replayed_by_their_trial(tmp_path: Path) -> None:
    with AgentJournal(tmp_path / "a.db", "3") as journal:
        for trial in (2, 0):
            journal.append("s1", "t", Evaluation(trial, np.array([0.5, trial / 4]), float(trial)))
        journal.commit()
        context = TaskContext("3", "s1", 3, task(), "t", 7, journal, {}, {}, True)
        taken = [context.take(trial, np.array([0.5, trial / 4]), 1) for trial in range(4)]
    assert [None if row is None else row.value for row in taken] == [0.0, None, 2.0, None]


def test_a_long_evaluation_is_committed_although_another_was_committed_just_before(tmp_path: Path) -> None:
    with AgentJournal(tmp_path / "a.db", "3", clock=lambda: 0.0) as journal:
        journal.append("s1", "t", Evaluation(0, np.array([0.5, 0.5]), 0.0, measures={"seconds": 0.5}))
        assert journal.evaluations("s1") == []
        journal.append("s1", "t", Evaluation(1, np.array([0.5, 0.5]), 0.0, measures={"seconds": 2.0}))
        assert [e.trial for e in journal.evaluations("s1")] == [0, 1]


# -- simulations ------------------------------------------------------------------------------------------


def bowl(config: dict[str, Any], centre: float) -> float:
    return -((config["x"] - centre) ** 2) - (config["y"] - 0.7) ** 2


def run(**given: Any) -> Any:
    options = {"num_initial": 3, "trials_per_round": 4, "num_candidates": 64}
    given = {"algorithm": "ei", "num_rounds": 3, "engine": "inline", "options": options, **given}
    return simulate(bowl, SPACE, **grouped(agents={"north": 0.2, "south": 0.4}, **given))


def test_simulated_agents_evaluate_several_trials_at_once() -> None:
    studies = [run(num_parallel=2) for _ in range(2)]
    assert repr(list(studies[0].trials)) == repr(list(studies[1].trials))
    assert len(studies[0].trials) == 2 * (3 + 4 + 4)
    times = studies[0].times
    assert (times["ended"] >= times["started"]).all()
    assert sorted(times["trial"].tolist()) == sorted(2 * list(range(11)))


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"engine": "ray"}, "num_parallel: expected 1 with the engine ray"),
        ({"engine": "flower"}, "num_parallel: expected 1 with the engine flower"),
        ({"durations": 1.0}, "num_parallel: expected 1 with durations"),
    ],
)
def test_simulations_in_which_it_means_nothing_refuse_it(given: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        run(num_parallel=2, **given)
    with pytest.raises(ConfigError, match="num_parallel: expected an integer"):
        run(num_parallel=0)
    with pytest.raises(
        ConfigError, match=reason.replace("num_parallel: expected 1", "trial_timeout: expected 0")
    ):
        run(trial_timeout=5.0, **given)


def slow_left(config: dict[str, Any], centre: float) -> float:
    if config["x"] < 0.5:
        time.sleep(600)
    return config["x"]


def test_a_simulated_evaluation_that_takes_too_long_costs_its_own_trial() -> None:
    study = simulate(
        slow_left,
        space=SPACE,
        agents=Agents({"north": 0.2}, num_parallel=4, trial_timeout=2.0),
        algorithm=make_algorithm("random", {"num_initial": 4}),
        num_rounds=1,
        seed=1,
        engine="inline",
    )
    left = np.array([config["x"] < 0.5 for config in study.trials["config"]])
    assert 0 < left.sum() < 4
    assert (np.isnan(study.trials["value"]) == left).all()
    assert all("trial_timeout" in text for text in study.trials["failure"][left])


def test_pulls_of_a_bandit_are_evaluated_at_once() -> None:
    options = {"budget": 24, "max_evaluations_per_round": 12}
    one, two = (
        simulate(
            "garland",
            agents=Agents(2, num_parallel=q),
            algorithm=make_algorithm("pf-pne", options),
            seed=3,
            engine="inline",
        )
        for q in (1, 2)
    )
    assert repr(list(one.trials)) == repr(list(two.trials))


def context(trial: int = 0) -> ObjectiveContext:
    return ObjectiveContext("3", 3, trial, 1, np.random.default_rng(trial))


def jobs(*xs: float) -> list[Job]:
    return [Job({"x": x}, [context(trial)]) for trial, x in enumerate(xs)]


def made(factory: Callable[[], Any]) -> WorkerPool:
    """A pool of what a factory returns; a function in a function is pickled by value."""
    return WorkerPool(pickled(factory()))


def ran(pool: WorkerPool, work: list[Job], at_once: int = 2, timeout: float = 0.0) -> list[Ended]:
    ended = dict(pool.run(work, at_once, timeout))
    return [ended[number] for number in range(len(work))]


def troubled() -> Any:
    def objective(config: dict[str, Any], context: Any) -> float:
        import os
        import signal
        import time

        if config["x"] == -1.0:
            os._exit(3)
        if config["x"] == -2.0:
            os.kill(os.getpid(), signal.SIGSEGV)
        if config["x"] == -3.0:
            raise ValueError("no such\nvalue")
        while config["x"] == -4.0:
            time.sleep(0.01)
        return float(config["x"])

    return objective


@pytest.fixture(scope="module")
def pool() -> Iterator[WorkerPool]:
    pool = made(troubled)
    yield pool
    pool.close()


def test_every_job_gets_its_own_value(pool: WorkerPool) -> None:
    ended = ran(pool, jobs(0.5, 0.25, 1e-300, 7.0))
    assert [e.values for e in ended] == [(0.5,), (0.25,), (1e-300,), (7.0,)]
    assert all(e.failure == "" and e.seconds >= 0 for e in ended)
    assert len(pool.idle) <= 2


def test_a_worker_that_dies_costs_its_own_trial(pool: WorkerPool) -> None:
    ended = ran(pool, jobs(0.1, -1.0, 0.2, -2.0, 0.3))
    assert [e.values for e in ended] == [(0.1,), (), (0.2,), (), (0.3,)]
    assert ended[1].failure == "the worker process ended with status 3 while it evaluated the trial"
    assert ended[3].failure == "the worker process was ended by SIGSEGV while it evaluated the trial"


def test_an_error_comes_with_its_traceback(pool: WorkerPool) -> None:
    (ended,) = ran(pool, jobs(-3.0))
    assert ended.failure == "ValueError: no such\\nvalue"
    assert ended.error is not None
    assert ended.error.kind == "ValueError"
    assert any("in objective" in line for line in ended.error.frames)


def test_a_trial_that_takes_too_long_is_ended_and_the_pool_goes_on(pool: WorkerPool) -> None:
    (ended,) = ran(pool, jobs(-4.0), timeout=0.05)
    assert ended.failure == "took longer than 0.05 s, the trial_timeout; its process was killed"
    assert ended.seconds >= 0.05
    assert [e.values for e in ran(pool, jobs(0.4, 0.5), timeout=600.0)] == [(0.4,), (0.5,)]


def test_trials_that_wait_for_each_other_are_under_way_at_once(tmp_path: Path) -> None:
    def meeting() -> Any:
        def objective(config: dict[str, Any], context: Any) -> float:
            import os
            import time

            (tmp_path / f"{context.trial}").touch()
            while not all((tmp_path / str(trial)).exists() for trial in range(3)):
                time.sleep(0.01)
            return float(os.getpid())

        return objective

    pool = made(meeting)
    processes = {e.values for e in ran(pool, jobs(0.0, 0.0, 0.0), at_once=3, timeout=600.0)}
    pool.close()
    assert len(processes) == 3
    assert (float(os.getpid()),) not in processes


def test_workers_run_blas_with_one_thread() -> None:
    def counting() -> Any:
        def objective(config: dict[str, Any], context: Any) -> float:
            import numpy as np
            import threadpoolctl

            np.ones((2, 2)) @ np.ones((2, 2))
            return float(max(info["num_threads"] for info in threadpoolctl.threadpool_info()))

        return objective

    pool = made(counting)
    (ended,) = ran(pool, jobs(0.0))
    pool.close()
    assert ended.values == (1.0,)


def test_a_trial_has_the_draws_that_it_would_have_here() -> None:
    def drawing() -> Any:
        return lambda config, context: context.rng.random() + context.trial

    pool = made(drawing)
    ended = ran(pool, jobs(0.0, 0.0))
    pool.close()
    assert [e.values[0] for e in ended] == [np.random.default_rng(t).random() + t for t in (0, 1)]


class Unloadable:
    """Is pickled, and cannot be unpickled."""

    def __reduce__(self) -> Any:
        return os.path.getsize, ("/no/such/file",)

    def __call__(self, config: Any, context: Any) -> float:
        return 0.0


def test_an_objective_that_a_worker_cannot_load_is_an_error_of_the_settings() -> None:
    pool = WorkerPool(pickle.dumps(Unloadable()))
    with pytest.raises(ConfigError, match=r"a worker process can load, .* No such file"):
        ran(pool, jobs(0.0))


def test_an_objective_that_cannot_be_pickled_is_refused_by_client_app() -> None:
    lock = threading.Lock()
    with pytest.raises(ConfigError, match=r"objective: expected what can be pickled.*lock"):
        client_app(lambda config, context: float(lock.locked()), SPACE, num_parallel=2)
    with pytest.raises(ConfigError, match=r"objective: expected what can be pickled.*lock"):
        client_app(lambda config, context: float(lock.locked()), SPACE, trial_timeout=2.0)
    client_app(lambda config, context: float(lock.locked()), SPACE)


def test_agents_of_one_objective_share_a_pool() -> None:
    def loss(config: Any, context: Any) -> float:
        return 0.0

    assert pool_of(loss) is pool_of(loss)


def test_workers_end_with_a_process_that_is_killed(tmp_path: Path) -> None:
    script = """
import os, sys, time
from fbo_flower.clients.workers import Job, WorkerPool, pickled

def objective(config, context):
    os.write(1, f"{os.getpid()}\\n".encode())  # in one piece: two workers write at once
    while True:
        time.sleep(0.01)

list(WorkerPool(pickled(objective)).run([Job({}, [None])] * 2, 2, 0.0))
"""
    (tmp_path / "script.py").write_text(script)  # without `if __name__ == "__main__"`
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, str(tmp_path / "script.py")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        try:
            workers = [int(process.stdout.readline()) for _ in range(2)]
        finally:
            process.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 120.0
    while any(_is_running(worker) for worker in workers):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _is_running(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"  # nobody may wait for it
