"""Worker processes: what they answer, and what becomes of those that die or take too long."""

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

from fbo_flower.clients import client_app
from fbo_flower.clients.objective import Loss, ObjectiveContext
from fbo_flower.clients.workers import Ended, Job, WorkerPool, pickled, pool_of
from fbo_flower.errors import ConfigError
from fbo_flower.space import Float, SearchSpace

SPACE = SearchSpace({"x": Float(0.0, 1.0)})


def context(trial: int = 0) -> ObjectiveContext:
    return ObjectiveContext("3", 3, trial, 1, np.random.default_rng(trial))


def jobs(*xs: float) -> list[Job]:
    return [Job({"x": x}, context(trial)) for trial, x in enumerate(xs)]


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
    assert pool_of(Loss(loss)) is pool_of(Loss(loss))
    assert pool_of(loss) is not pool_of(Loss(loss))


def test_workers_end_with_a_process_that_is_killed(tmp_path: Path) -> None:
    script = """
import os, sys, time
from fbo_flower.clients.workers import Job, WorkerPool, pickled

def objective(config, context):
    os.write(1, f"{os.getpid()}\\n".encode())  # in one piece: two workers write at once
    while True:
        time.sleep(0.01)

list(WorkerPool(pickled(objective)).run([Job({}, None)] * 2, 2, 0.0))
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
