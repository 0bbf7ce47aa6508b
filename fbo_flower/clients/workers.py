"""Worker processes that evaluate an agent's objective, several trials at once.

A worker is started fresh, not forked, so it is safe beside Ray, gRPC and BLAS threads, and it does not run
the program that started the agent: a script needs no `if __name__ == "__main__"`. It runs BLAS and OpenMP
with one thread. A worker that dies, or takes longer than a trial may, costs its own trial, and the next one
gets a new worker.

A worker inherits one end of a pipe. The first message is the pickled objective. Each further one is a pickled
job, and the answer to it is arrays and JSON, so that the agent unpickles nothing. A thread reads the pipe:
when the agent's process ends, however it ends, the pipe closes and the worker ends too, even within an
evaluation.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import pickle
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Any

import cloudpickle  # type: ignore[import-untyped]  # it has no annotations

from fbo_flower.algorithms.records import AnyArray, Trials
from fbo_flower.clients.objective import Ended, Job, Objective, call, with_values
from fbo_flower.errors import ConfigError, NotInTimeError, WireError, WrongTypeError
from fbo_flower.numerics.threads import single_thread
from fbo_flower.storage.files import dumps, loads

START_SECONDS = 300.0  # for a worker to import what the objective needs, on a busy machine
LONGEST_WAIT = 3600.0  # seconds; the system call has a limit
BOOT = (
    "import sys; descriptor = int(sys.argv[1]); sys.path[:] = sys.argv[2:]; sys.argv[1:] = []; "
    "from fbo_flower.clients import workers; workers.work(descriptor)"
)
THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


class Worker:
    """One worker process for a pickled objective, and the pipe to it."""

    def __init__(self, objective: bytes) -> None:
        ours, theirs = socket.socketpair()
        path = [os.path.abspath(entry) for entry in sys.path]
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-c", BOOT, str(theirs.fileno()), *path],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env=os.environ | dict.fromkeys(THREADS, "1"),
                start_new_session=True,  # Ctrl-C reaches the agent only; a kill reaches its own children too
            )
        self.pipe = Connection(ours.detach())
        self.ready = False
        self.send(objective)

    def send(self, content: bytes) -> None:
        """Send a message; that a worker has died is noticed when its answer is read."""
        self.sent, self.clock = time.time(), time.perf_counter()
        with contextlib.suppress(OSError):
            self.pipe.send_bytes(content)

    def left(self, job: Job, timeout: float) -> float:
        """Return the seconds that the worker may still take for what it does; `timeout` 0: any number."""
        most = timeout * (job.row.num_trials if job.repeats else 1) if self.ready else START_SECONDS
        return most - (time.perf_counter() - self.clock) if most else float("inf")

    def answer(self, job: Job) -> Ended | None:
        """Return how the job has ended; None: the worker is ready for it. ConfigError if it cannot load."""
        arrays, answer = dict[str, AnyArray](), dict[str, Any]()
        with contextlib.suppress(EOFError, OSError, WireError):
            arrays, answer = loads(self.pipe.recv_bytes())
        if not self.ready:
            self.ready = answer.get("ready") is True
            if not self.ready:
                self.kill()
                raise ConfigError(
                    "objective: expected one that a worker process can load, as num_parallel and "
                    f"trial_timeout need, got {answer.get('refused', f'a worker that {self.ending}')}; check "
                    "that a new Python process can import what it needs, or leave these two out"
                )
            return None
        if not answer:
            self.kill()
            return self._failed(job, f"the worker process {self.ending} while it evaluated the trial")
        if "wrong_type" in answer:
            raise WrongTypeError(*map(str, answer["wrong_type"]))
        if "not_in_time" in answer:
            raise NotInTimeError(str(answer["not_in_time"]))
        error = answer["error"]
        return Trials.from_arrays(arrays), None if error is None else (str(error[0]), str(error[1]))

    def expire(self, job: Job, timeout: float) -> Ended:
        """Kill a worker whose time is up, and return how its job has ended."""
        self.kill()
        if not self.ready:
            raise ConfigError(
                f"objective: expected a worker process to load it within {START_SECONDS:g} s, got no answer"
            )
        return self._failed(job, f"took longer than {timeout:g} s, the trial_timeout; its process was killed")

    def kill(self) -> None:
        """Kill the process with all that it has started, and close the pipe."""
        if not self.pipe.closed:
            with contextlib.suppress(OSError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.pipe.close()
            self.process.wait()

    @property
    def ending(self) -> str:
        """How the process has ended."""
        code = self.process.wait()
        with contextlib.suppress(ValueError):
            return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"
        return f"was ended by signal {-code}"

    def _failed(self, job: Job, reason: str) -> Ended:
        times = self.sent, self.sent + time.perf_counter() - self.clock
        return with_values(job.row, (), reason, times, job.aims), None


@dataclass
class WorkerPool:
    """Workers of one objective; they are started when they are needed, and end with this process.

    Parameters
    ----------
    objective : pickled
    idle : workers that wait for a job
    owner : id of the process that has started them
    """

    objective: bytes
    idle: list[Worker] = field(default_factory=list)
    owner: int = field(default_factory=os.getpid)

    def run(self, jobs: Sequence[Job], at_once: int, timeout: float) -> Iterator[tuple[int, Ended]]:
        """Run jobs, up to `at_once` at the same time, and yield the place and the end of each as it ends.

        `timeout` is in seconds of one evaluation, 0: any number. ConfigError if a worker cannot load.
        """
        waiting, busy = deque(range(len(jobs))), dict[Worker, int]()
        try:
            while waiting or busy:
                while waiting and len(busy) < at_once:
                    worker = self._take()
                    busy[worker] = waiting.popleft()
                    if worker.ready:
                        worker.send(cloudpickle.dumps(jobs[busy[worker]]))
                left = min(worker.left(jobs[number], timeout) for worker, number in busy.items())
                wait([worker.pipe for worker in busy], min(max(left, 0.0), LONGEST_WAIT))
                for worker, number in list(busy.items()):
                    if worker.pipe.poll():
                        ended = worker.answer(jobs[number])
                    elif worker.left(jobs[number], timeout) <= 0.0:
                        ended = worker.expire(jobs[number], timeout)
                    else:
                        continue
                    if ended is None:
                        worker.send(cloudpickle.dumps(jobs[number]))
                        continue
                    del busy[worker]
                    if not worker.pipe.closed:
                        self.idle.append(worker)
                    yield number, ended
        finally:
            for worker in busy:  # an evaluation under way is lost when its agent is interrupted
                worker.kill()

    def close(self) -> None:
        """Kill the workers that wait, unless this process is a fork and they belong to its parent."""
        while self.idle:
            worker = self.idle.pop()
            if self.owner == os.getpid():
                worker.kill()

    def _take(self) -> Worker:
        with contextlib.suppress(IndexError):  # another thread may take the last one
            while True:
                worker = self.idle.pop()
                if worker.process.poll() is None:
                    return worker
                worker.kill()
        return Worker(self.objective)


def pickled(objective: Objective) -> bytes:
    """Return an objective as bytes for worker processes; ConfigError if it cannot be pickled."""
    try:
        return bytes(cloudpickle.dumps(objective, protocol=pickle.HIGHEST_PROTOCOL))
    except Exception as error:  # pickle raises several kinds, and so may the user's objects
        text = next((line.strip() for line in reversed(str(error).splitlines()) if line.strip()), "")
        raise ConfigError(
            "objective: expected what can be pickled and sent to worker processes, as num_parallel and "
            f"trial_timeout need, got {type(error).__name__}: {text[:200]}; open files, locks and "
            "connections inside the objective, or leave these two out"
        ) from error


_POOLS: list[tuple[Objective, WorkerPool]] = []  # the latest objectives, and their workers
_MAX_POOLS = 4


def pool_of(objective: Objective) -> WorkerPool:
    """Return this process's pool for an objective; ConfigError if it cannot be pickled, and on Windows."""
    for known, pool in _POOLS:
        if known is objective and pool.owner == os.getpid():
            return pool
    if os.name == "nt":
        raise ConfigError(
            "num_parallel, trial_timeout: expected them on Linux or macOS, got Windows; leave them out"
        )
    pool = WorkerPool(pickled(objective))
    _POOLS.append((objective, pool))
    while len(_POOLS) > _MAX_POOLS:
        _POOLS.pop(0)[1].close()
    return pool


@atexit.register
def close_pools() -> None:
    """Kill all workers of this process that wait."""
    while _POOLS:
        _POOLS.pop()[1].close()


MAX_REFUSAL = 500  # characters of the reason why an objective cannot be loaded


def work(descriptor: int) -> None:
    """Load the objective, then evaluate trials until the agent closes the pipe."""
    pipe = Connection(descriptor)
    tasks: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(pipe, tasks), daemon=True).start()
    try:
        objective = pickle.loads(tasks.get())  # of this device's own agent
    except BaseException as error:
        _answer(pipe, {"refused": f"{type(error).__name__}: {error}"[:MAX_REFUSAL]})
        return
    _answer(pipe, {"ready": True})
    while True:
        job = pickle.loads(tasks.get())
        try:
            with single_thread():
                row, found = call(objective, job)
            _answer(pipe, {"error": found}, row.to_arrays())
        except WrongTypeError as wrong:
            _answer(pipe, {"wrong_type": [wrong.kind, wrong.shown, wrong.wanted]})
        except NotInTimeError as late:
            _answer(pipe, {"not_in_time": str(late)})


def _read(pipe: Connection, tasks: queue.SimpleQueue[bytes]) -> None:
    """Pass messages on; end the process when there will be no more."""
    try:
        while True:
            tasks.put(pipe.recv_bytes())
    except (EOFError, OSError):
        os.killpg(os.getpgrp(), signal.SIGKILL)  # with the processes that the objective has started


def _answer(pipe: Connection, values: dict[str, Any], arrays: Mapping[str, AnyArray] | None = None) -> None:
    pipe.send_bytes(dumps(arrays or {}, values))
