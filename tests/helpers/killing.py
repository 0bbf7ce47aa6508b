"""A study in a process of its own, which SIGKILLs itself at a chosen write of a chosen journal.

Server and agents of the study live in that process and keep journals in one directory, so each write of any
of them can be the last thing that happens. The next process finds what is on disk and nothing else.
"""

import os
import signal
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from flwr.serverapp import Grid
from forks import forked

from fbo_flower.clients import workers
from fbo_flower.simulation import Agents
from fbo_flower.simulation.agents import problem_app
from fbo_flower.simulation.durations import log_normal
from fbo_flower.simulation.grids import ClockedGrid, InProcessGrid
from fbo_flower.simulation.problems import make_problem
from fbo_flower.storage import agent_journal
from fbo_flower.storage.store import Store
from fbo_flower.strategies import STRATEGIES
from fbo_flower.study import Study

SEED = 5


@dataclass(frozen=True)
class Case:
    """A small study: algorithm, options, problem, number of agents and of rounds, and if there is a seed.

    An asynchronous one runs on a simulated clock, on which answers come in the same order whatever happens.
    """

    algorithm: str
    options: dict[str, Any]
    num_rounds: int | None = 3
    problem: str = "gp-samples"
    problem_options: dict[str, Any] = field(default_factory=dict)
    num_agents: int = 2
    seeded: bool = True  # the strategy; agents are always
    mode: str = "sync"
    num_parallel: int = 1


_BANDIT = {"budget": 40, "max_evaluations_per_round": 20}
_TS = {"num_initial": 2, "num_candidates": 32, "num_path_features": 9}
_FTS = {**_TS, "num_features": 9, "schedule": 0.5}
_CO_KG = {"num_initial": 3, "num_points": 25}
_PRIVATE = {
    "num_initial": 2, "num_features": 5, "sampling_rate": 0.8, "schedule": 0.3,
    "num_candidates": 16, "num_path_features": 8,
}  # fmt: skip
_RFMS = {"method": "rand_mo", "num_trials": 3, "num_initial": 3}
_SITES = {"learner": "elastic-net", "split": "srs", "openbox": 0, "lockbox": 1}
CASES = {
    "random": Case("random", {"num_initial": 2}),
    "fts": Case("fts", _FTS),
    "fts async": Case("fts", {**_FTS, "num_initial": 1}, mode="async"),
    "ts in threes": Case("ts", {**_TS, "trials_per_round": 3}),
    "ts two at once": Case("ts", {**_TS, "trials_per_round": 2}, num_parallel=2),
    "dp-fts": Case("dp-fts", _PRIVATE, 5),
    "co-kg": Case("co-kg", _CO_KG, 4, "f1"),
    "co-kg async": Case("co-kg", _CO_KG, 3, "f1", mode="async"),
    "pf-pne": Case("pf-pne", _BANDIT, None, "garland"),
    "pf-pne racing": Case("pf-pne", {**_BANDIT, "variant": "racing"}, None, "garland"),
    "fed-pne secure": Case("fed-pne", {"budget": 8, "secure_sums": 2}, None, "garland"),
    "hct": Case("hct", _BANDIT, None, "garland"),
    "rfms": Case("rfms", _RFMS, None, "breast-cancer-5sites", _SITES, 5),
}

# draws its noise and its sample from the operating system: no two runs are equal
UNSEEDED = Case("dp-fts", _PRIVATE, seeded=False)


@dataclass(frozen=True)
class Kill:
    """Write number `number` of all journals together is the last one; it is committed or not."""

    number: int
    committed: bool


@dataclass(frozen=True)
class Ended:
    """How a process ended.

    Parameters
    ----------
    study : what it returned; None: it was killed
    writes : name of the journal of every commit that was reached, in order
    evaluations : `(agent, trial)` in order
    """

    study: Study | None
    writes: tuple[str, ...]
    evaluations: tuple[str, ...]


def run(case, directory, kill=None):
    """Run what is left of a study in a process of its own, which may be killed on the way."""
    result, writes, evaluations = (directory / name for name in ("result", "writes", "evaluations"))
    for path in (writes, evaluations):
        path.write_text("")
    ended = forked(lambda: _study(case, directory, writes, evaluations, kill).save(result), directory)
    names = (tuple(path.read_text().split()) for path in (writes, evaluations))
    return Ended(Study.load(result) if ended else None, *names)


def _study(case, directory, writes, evaluations, kill):
    agent_journal.COMMIT_SECONDS = 0.0  # as if every evaluation took a second
    problem = make_problem(case.problem, case.num_agents, SEED, case.problem_options)
    seed = SEED if case.seeded else None
    strategy = STRATEGIES[case.algorithm](num_agents=case.num_agents, seed=seed, **case.options)
    parallel = Agents(num_parallel=case.num_parallel)
    app = problem_app(problem, strategy.algorithm, SEED, agents=parallel, journals=directory)
    local = InProcessGrid(app, case.num_agents)
    grid: Grid = ClockedGrid(local, log_normal(), SEED) if case.mode == "async" else local
    workers.subprocess = SimpleNamespace(Popen=ForkedWorker, DEVNULL=None)
    with dying(kill, writes), _noting(evaluations):
        return strategy.start(
            grid, num_rounds=case.num_rounds, journal=directory / "study.db", resume=True, mode=case.mode
        ).study


class ForkedWorker:
    """In place of `subprocess.Popen` of a worker: the same process, started by a fork.

    A fresh Python takes more than a second to import what an objective needs. Here hundreds of workers are
    started, because each process of the study has workers of its own.
    """

    def __init__(self, arguments, *, pass_fds, **others):
        (descriptor,) = pass_fds
        self.returncode: int | None = None
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.setsid()
                os.closerange(3, descriptor)  # the other end of the pipe, so that it closes with the agent
                os.closerange(descriptor + 1, 2**16)
                workers.work(descriptor)
            finally:
                os._exit(1)

    def poll(self):
        return self._wait(os.WNOHANG)

    def wait(self):
        return self._wait(0)

    def _wait(self, options):
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, options)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode


@contextmanager
def dying(kill, writes):
    """Note every write of a journal, and end the process at one of them."""
    original, count = Store.transaction, 0

    @contextmanager
    def transaction(self):
        nonlocal count
        count += 1
        dies = kill is not None and count == kill.number
        with original(self):
            yield
            _append(writes, self.path.name)
            if dies and not kill.committed:
                os.kill(os.getpid(), signal.SIGKILL)
        if dies:
            os.kill(os.getpid(), signal.SIGKILL)

    Store.transaction = transaction
    yield


@contextmanager
def _noting(evaluations):
    """Note every evaluation that is entered into an agent's journal."""
    original = agent_journal.AgentJournal.append

    def append(self, study, task, evaluation):
        _append(evaluations, f"{self.path.name}:{evaluation.trials[0]}:{task[:8]}")
        original(self, study, task, evaluation)

    agent_journal.AgentJournal.append = append
    yield


def _append(path, line):
    with path.open("a") as stream:
        stream.write(line + "\n")


def tables(study):
    """Return what must be the same after a kill: everything but durations and the study's id."""
    rounds = [{k: v for k, v in row.items() if k != "seconds"} for row in study.rounds]
    others = (study.trials, study.models, study.judgements, study.recommendations, study.replies)
    return repr([rounds, *map(list, others)])
