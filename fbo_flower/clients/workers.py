"""Worker processes that evaluate an agent's objective, several trials at once.

A worker is started fresh, not forked, so it is safe beside Ray, gRPC and BLAS threads, and it does not run
the program that started the agent: a script needs no `if __name__ == "__main__"`. It runs BLAS and OpenMP
with one thread. A worker that dies, or takes longer than a trial may, costs its own trial, and the next one
gets a new worker.

A worker inherits one end of a pipe. The first message is the pickled objective. Each further one is a pickled
trial, and the answer to it is JSON, so that the agent unpickles nothing. A thread reads the pipe: when the
agent's process ends, however it ends, the pipe closes and the worker ends too, even within an evaluation.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import json
import os
import pickle
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from multiprocessing.connection import Connection, wait
from typing import Any, cast

import cloudpickle  # type: ignore[import-untyped]  # it has no annotations

from fbo_flower.algorithms.aims import NUMBER, Aims
from fbo_flower.clients.memory import Memory
from fbo_flower.clients.objective import Objective, ObjectiveContext, evaluate, evaluate_repeatedly
from fbo_flower.clients.pruning import Curve
from fbo_flower.errors import ConfigError, NotInTimeError, ObjectiveError, WrongTypeError, printable
from fbo_flower.numerics.threads import single_thread

START_SECONDS = 300.0  # for a worker to import what the objective needs, on a busy machine
LONGEST_WAIT = 3600.0  # seconds; the system call has a limit
BOOT = (
    "import sys; descriptor = int(sys.argv[1]); sys.path[:] = sys.argv[2:]; sys.argv[1:] = []; "
    "from fbo_flower.clients import workers; workers.work(descriptor)"
)
_ERRORS_NOTE = "errors"
_MOST = 20  # distinct errors that an agent remembers
_MOST_CHARACTERS = 500  # of a line of a traceback
THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


@dataclass(frozen=True)
class ErrorTexts:
    """An error in texts, which can be passed between processes.

    Parameters
    ----------
    kind : its type
    where : file and line where it was raised, if known
    frames : the lines of its traceback
    says : the error and its cause, if there is one, as Python prints them
    """

    kind: str
    where: tuple[str, ...]
    frames: tuple[str, ...]
    says: tuple[str, ...]

    @staticmethod
    def of(error: BaseException) -> ErrorTexts:
        """Return the texts of an error."""
        last = traceback.extract_tb(error.__traceback__)[-1:]
        chain = [error] if error.__cause__ is None else [error, error.__cause__]
        return ErrorTexts(
            type(error).__name__,
            tuple(f"{frame.filename}:{frame.lineno}" for frame in last),
            tuple(line for entry in traceback.format_tb(error.__traceback__) for line in entry.splitlines()),
            tuple("".join(traceback.format_exception_only(e)).rstrip() for e in chain),
        )


def new_traceback(memory: Memory, texts: ErrorTexts | None) -> str:
    """Return the traceback of an error, in indented lines; "" if the agent has returned it before.

    Two errors are the same if they have the same type and were raised at the same line of the same file. The
    agent's memory keeps their checksums, because on a device every message may start a new process.
    """
    if texts is None:
        return ""
    key = hashlib.sha256(" ".join([texts.kind, *texts.where]).encode()).hexdigest()[:16]
    known = cast(list[str], memory.note(_ERRORS_NOTE).get("seen", []))
    if key in known:
        return ""
    memory.put_note(_ERRORS_NOTE, {"seen": [*known, key][-_MOST:]})
    # the text of an error is one line, so that it cannot look like lines of the log
    lines = ["Traceback (most recent call last):", *texts.frames, *texts.says[:1]]
    lines += [f"caused by {cause}" for cause in texts.says[1:]]
    return "".join(f"\n  {printable(line)[:_MOST_CHARACTERS]}" for line in lines)


@dataclass(frozen=True)
class Job:
    """One call of the objective, or several in turn.

    Parameters
    ----------
    config : its first argument
    contexts : its second argument, one per call
    repeats : how many evaluations one call of `objective.repeated` makes; 0: call the objective itself
    aims : what it returns
    """

    config: dict[str, Any]
    contexts: Sequence[ObjectiveContext]
    repeats: int = 0
    aims: Aims = NUMBER


@dataclass(frozen=True)
class Ended:
    """How a job ended.

    Parameters
    ----------
    values : what the objective returned, larger is better: one number per evaluation that succeeded, or the
        outputs of the only one
    failure : the reason of the first evaluation that failed; "" if none did
    started, stopped : when it began and ended, in seconds since 1970
    error : the objective's error; None if there was none
    curve : what the trial has reported; None: nothing
    """

    values: tuple[float, ...]
    failure: str
    started: float
    stopped: float
    error: ErrorTexts | None = None
    curve: Curve | None = None


def call(objective: Objective, job: Job) -> Ended:
    """Call the objective in this process; WrongTypeError if it returns no number, as it would again."""
    started, before = time.time(), time.perf_counter()
    values: list[float] = []
    failure, error = "", None
    for context in job.contexts:
        try:
            if job.repeats:
                repeated = evaluate_repeatedly(objective, job.config, context, job.repeats, job.aims)
                values += repeated.tolist()
            else:
                values += evaluate(objective, job.config, context, job.aims)
        except WrongTypeError:
            raise
        except ObjectiveError as raised:
            if not failure:
                failure = str(raised)
                error = None if raised.__cause__ is None else ErrorTexts.of(raised.__cause__)
    curve = job.contexts[0].curve
    stopped = started + time.perf_counter() - before
    return Ended(tuple(values), failure, started, stopped, error, curve if curve.steps else None)


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
        most = timeout * max(1, job.repeats) if self.ready else START_SECONDS
        return most - (time.perf_counter() - self.clock) if most else float("inf")

    def answer(self, job: Job) -> Ended | None:
        """Return how the job has ended; None: the worker is ready for it. ConfigError if it cannot load."""
        answer: dict[str, Any] = {}
        with contextlib.suppress(EOFError, OSError, ValueError):
            answer = json.loads(self.pipe.recv_bytes())
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
            return self._failed(f"the worker process {self.ending} while it evaluated the trial")
        if "wrong_type" in answer:
            raise WrongTypeError(*map(str, answer["wrong_type"]))
        if "not_in_time" in answer:
            raise NotInTimeError(str(answer["not_in_time"]))
        values, error, told = tuple(map(float, answer["values"])), answer["error"], answer["curve"]
        texts = None if error is None else ErrorTexts(**error)
        curve = None if told is None else replace(job.contexts[0].curve, **told)
        started, stopped = float(answer["started"]), float(answer["stopped"])
        return Ended(values, str(answer["failure"]), started, stopped, texts, curve)

    def expire(self, timeout: float) -> Ended:
        """Kill a worker whose time is up, and return how its job has ended."""
        self.kill()
        if not self.ready:
            raise ConfigError(
                f"objective: expected a worker process to load it within {START_SECONDS:g} s, got no answer"
            )
        return self._failed(f"took longer than {timeout:g} s, the trial_timeout; its process was killed")

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

    def _failed(self, reason: str) -> Ended:
        return Ended((), reason, self.sent, self.sent + time.perf_counter() - self.clock)


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
                        worker.send(_message(jobs[busy[worker]]))
                left = min(worker.left(jobs[number], timeout) for worker, number in busy.items())
                wait([worker.pipe for worker in busy], min(max(left, 0.0), LONGEST_WAIT))
                for worker, number in list(busy.items()):
                    if worker.pipe.poll():
                        ended = worker.answer(jobs[number])
                    elif worker.left(jobs[number], timeout) <= 0.0:
                        ended = worker.expire(timeout)
                    else:
                        continue
                    if ended is None:
                        worker.send(_message(jobs[number]))
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


def _message(job: Job) -> bytes:
    return bytes(cloudpickle.dumps((job.config, job.contexts, job.repeats, job.aims)))


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
        job = Job(*pickle.loads(tasks.get()))
        try:
            with single_thread():
                ended = call(objective, job)
            answer = asdict(replace(ended, curve=None))
            if (curve := ended.curve) is not None:
                answer["curve"] = {"steps": curve.steps, "values": curve.values, "stopped": curve.stopped}
        except WrongTypeError as error:
            answer = {"wrong_type": [error.kind, error.shown, error.wanted]}
        except NotInTimeError as error:
            answer = {"not_in_time": str(error)}
        _answer(pipe, answer)


def _read(pipe: Connection, tasks: queue.SimpleQueue[bytes]) -> None:
    """Pass messages on; end the process when there will be no more."""
    try:
        while True:
            tasks.put(pipe.recv_bytes())
    except (EOFError, OSError):
        os.killpg(os.getpgrp(), signal.SIGKILL)  # with the processes that the objective has started


def _answer(pipe: Connection, answer: dict[str, Any]) -> None:
    pipe.send_bytes(json.dumps(answer).encode())
