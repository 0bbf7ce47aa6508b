"""The tuner's loop: give free places to trials, do one round of all of them, write it down.

**Shares.** The clients form as many *blocks* as there are places for trials, drawn once by the seed, of sizes
that differ by one at most. In every round each trial gets a block, and with fewer trials than blocks some get
several. Which ones: those that the trials have had least often. So every trial comes to see all clients, and
trials that compete are trained and judged by the same groups of clients, at most some rounds apart.

**Journal.** Whatever changes trials is one event, which is written in one transaction before it takes effect:
a trial that begins, with its point; one that may go on until a new target; what one round of all running
trials brought, with the digests of their checkpoints, which are on the disk before the event is; and what the
re-evaluation of a finalist brought. So a killed server goes on with the round in which it was, which is done
again as a whole. Proposals are written, not recomputed, so a resumed tuner does not fit its surrogate again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from logging import INFO, WARNING
from typing import Any

import numpy as np
from flwr.common.logger import log

from fbo_flower.errors import ConfigError, ObjectiveError, printable
from fbo_flower.federated.proposals import Proposals, ranking
from fbo_flower.federated.records import FederatedTrial, TrialRound
from fbo_flower.federated.schedules import GoOn, NewTrial, Schedule, Search
from fbo_flower.federated.state import Checkpoints, Content
from fbo_flower.federated.step import MISTAKES, Failure, Run, Step, TrialRun, least_clients
from fbo_flower.numerics.seeding import generator
from fbo_flower.space.space import Config
from fbo_flower.storage import Event, StudyJournal
from fbo_flower.strategies.process import interruptible
from fbo_flower.strategies.settings import Callbacks
from fbo_flower.study.schema import RECOMMENDATIONS, ROUNDS, SCHEMA, TRIALS
from fbo_flower.study.study import Study
from fbo_flower.study.table import Table
from fbo_flower.study.trial import FAILED, STOPPED_EARLY, SUCCEEDED, Trial
from fbo_flower.trackers.callback import Callback, RoundInfo, StudyInfo

MAX_ATTEMPTS = 3  # at a round for which no client can be reached
MAX_FAILED = 5  # trials that fail before the first one succeeds
AGENT = "federation"  # the name under which trackers show the trials


@dataclass(frozen=True)
class TunerProgress:
    """What callbacks are told after every round.

    Attributes
    ----------
    trials : all trials so far
    spent : client-rounds so far
    """

    trials: tuple[FederatedTrial, ...]
    spent: int


class Trackers(Callbacks):
    """Tells callbacks of trials when they have ended, and of each round of the tuner.

    A trial has ended when it has failed or come to its last round, or when the run ends: until then it may be
    promoted.

    Parameters
    ----------
    callbacks : whom to tell; functions are called by the tuner
    info : of the run; a resumed run keeps the id
    rounds : of a whole trial
    """

    def __init__(self, callbacks: Sequence[object], info: StudyInfo, rounds: int) -> None:
        super().__init__(callbacks, info)
        self._rounds, self._sign = rounds, -1.0 if info.minimize else 1.0
        self._shown: set[int] = set()
        self._round = 0

    def round_ended(self, trials: Sequence[FederatedTrial], numbers: Mapping[str, float]) -> None:
        """Tell the trials that have ended, and the round."""
        self._round += 1
        self._show(trial for trial in trials if trial.failure or trial.round >= self._rounds)
        values = [trial.value for trial in trials if trial.has_value]
        best = self._sign * max(values, default=math.nan)
        self._call("on_round", RoundInfo(self._round, {**numbers, "best": best}))

    def finished(
        self,
        trials: Sequence[FederatedTrial],
        best: Sequence[FederatedTrial],
        status: str,
        *,
        resumable: bool,
    ) -> None:
        """Tell that the run has ended, and before it what is left, unless a resumed run may go on with it.

        Parameters
        ----------
        best : the best trial, as `TunedFederation` has it; none without a value
        """
        if not resumable:
            self._show(trials)
        rows = [
            {"algorithm": "tune_federation", "agent": AGENT, "round": trial.round, "trial": trial.number,
             "pulls": 1, "config": trial.config, "value": self._sign * trial.value,
             "failure": trial.failure, "regret": math.nan}
            for trial in trials
            if trial.rounds or trial.failure
        ]  # fmt: skip
        run = {"algorithm": "tune_federation", "status": status, "minimize": self._info.minimize}
        bests = [
            {"algorithm": "tune_federation", "agent": AGENT, "config": trial.config, "mean": math.nan,
             "value": self._sign * (trial.value if trial.judged is None else trial.judged)}
            for trial in best
        ]  # fmt: skip
        study = Study(
            {"schema": SCHEMA, "name": "tune_federation", "runs": [run]},
            Table.from_rows(rows, TRIALS),
            Table.from_rows([], ROUNDS),
            recommendations=Table.from_rows(bests, RECOMMENDATIONS),
        )
        self._call("on_finish", study)

    def _show(self, trials: Any) -> None:
        for trial in trials:
            if trial.number in self._shown or not (trial.rounds or trial.failure):
                continue
            self._shown.add(trial.number)
            whole = trial.round >= self._rounds
            state = FAILED if trial.failure else SUCCEEDED if whole else STOPPED_EARLY
            curve = {done.round: self._sign * done.value for done in trial.rounds}
            shown = Trial(AGENT, trial.number, trial.round, state, trial.config, self._sign * trial.value,
                          trial.failure, intermediate=curve)  # fmt: skip
            self._call("on_trial", shown)


class Shares:
    """The blocks of clients, one for each place of a trial."""

    def __init__(self, num_blocks: int, seed: int) -> None:
        self._num_blocks, self._seed = num_blocks, seed
        self.block_of: dict[int, int] = {}  # client -> its block

    def assign(self, trials: Sequence[FederatedTrial], clients: Sequence[int]) -> dict[int, list[int]]:
        """Return the clients of each trial in the next round; every connected client is in one share."""
        members = self._members(clients)
        if not trials:
            return {}
        order = sorted(trials, key=lambda trial: trial.number)
        visits = np.zeros((len(order), self._num_blocks), dtype=np.int64)
        for row, trial in enumerate(order):
            for done in trial.rounds:
                visits[row, list(done.blocks)] += 1
        shares: dict[int, list[int]] = {trial.number: [] for trial in order}
        for row, block in assignment(visits):
            shares[order[row].number] += members[block]
        return {number: sorted(share) for number, share in shares.items()}

    def _members(self, clients: Sequence[int]) -> list[list[int]]:
        """Return the connected clients of each block; a client that comes later joins the smallest one."""
        new = [client for client in sorted(clients) if client not in self.block_of]
        known = [self.block_of[client] for client in clients if client in self.block_of]
        sizes = np.bincount(known, minlength=self._num_blocks)
        order = generator(self._seed, "federation", "blocks", len(self.block_of)).permutation(len(new))
        for position in order:
            block = int(np.argmin(sizes))
            self.block_of[new[position]] = block
            sizes[block] += 1
        members: list[list[int]] = [[] for _ in range(self._num_blocks)]
        for client in clients:
            members[self.block_of[client]].append(client)
        return members


def assignment(visits: np.ndarray[tuple[int, int], np.dtype[np.int64]]) -> list[tuple[int, int]]:
    """Return pairs (trial, block) that give every block to one trial, and each trial as many as the others.

    They minimise `sum (v + 1/2)` over the pairs, which is the increase of `sum v^2 / 2`. Its minimum is
    reached when all counts of a trial are equal. It is the linear assignment problem, solved exactly.

    Parameters
    ----------
    visits : `(T, K)` with `T <= K`, how often each trial has had each block
    """
    from scipy.optimize import linear_sum_assignment

    num_trials, num_blocks = visits.shape
    # a trial has as many rows as it may get blocks; a second block is dear, so that all get a first one
    copies = -(-num_blocks // num_trials)
    dear = float(visits.max(initial=0) + 1) * num_blocks
    cost = np.concatenate([visits + 0.5 + dear * copy for copy in range(copies)])
    rows, columns = linear_sum_assignment(cost)
    return [(int(row) % num_trials, int(column)) for row, column in zip(rows, columns, strict=True)]


@dataclass(eq=False)
class Tuner:
    """Runs trials over a federation; see `tune_federation` for the settings."""

    build: Callable[[Config], Run]
    seed: int
    step: Step
    schedule: Schedule
    proposals: Proposals
    journal: StudyJournal | None
    checkpoints: Checkpoints
    budget: int | None
    search: Search
    callbacks: Sequence[Callback | Callable[[TunerProgress], None]]
    trackers: Trackers

    def __post_init__(self) -> None:
        self._trials: dict[int, FederatedTrial] = {}
        self._runs: dict[int, TrialRun] = {}
        self._shares = Shares(self.search.num_parallel, self.seed)
        self._attempts: dict[int, int] = {}
        self._wasted = 0
        self._begun = False
        self._lossy: set[type] = set()  # classes of strategies with state that cannot be saved

    @property
    def trials(self) -> list[FederatedTrial]:
        """All trials, by number."""
        return list(self._trials.values())

    @property
    def spent(self) -> int:
        """Client-rounds so far, those of rounds that brought nothing included."""
        return sum(trial.client_rounds for trial in self.trials) + self._wasted

    def replay(self, events: Sequence[Event]) -> None:
        """Bring the tuner to the state that a journal describes."""
        for event in events:
            self._apply(event)
            if "rounds" in event.values:
                self.trackers.round_ended(self.trials, {"client_rounds": float(self.spent)})
        self._collect()
        if self._trials:
            log(INFO, "Resumed with %d trials, %d of them under way, after %d client-rounds",
                len(self._trials), len(self._running()), self.spent)  # fmt: skip

    def _commit(self, point: Any = None, **values: Any) -> None:
        event = Event("federation", arrays={} if point is None else {"point": point}, values=values)
        if self.journal is not None:
            self.journal.write([event])
        self._apply(event)

    def _apply(self, event: Event) -> None:
        values: Mapping[str, Any] = event.values
        if "new" in values:
            point, number = np.array(event.arrays["point"], dtype=np.float64), len(self._trials)
            config = self.proposals.space.decode(point)
            self._trials[number] = FederatedTrial(number, config, point, **values["new"])
        for name, done in values.get("rounds", {}).items():
            self._trials[int(name)] = self._trials[int(name)].learn(TrialRound(**done))
        for name, changes in values.get("changed", {}).items():
            self._trials[int(name)] = replace(self._trials[int(name)], **changes)
        self._wasted = values.get("wasted", self._wasted)

    def run(self) -> None:
        """Run until the budget is spent, or no trial is left."""
        with interruptible(self.step.stop):
            self.step.wait_for_clients(self.step.clients.number)
            while self.budget is None or self.spent < self.budget:
                self._fill()
                if not self._running():
                    break
                self._one_round()
                self._check_failures()
            self._check_failures(at_the_end=True)
            self._judge_finalists()

    def run_of(self, number: int) -> TrialRun:
        """Return a trial's live state, from its last checkpoint if it is not in memory."""
        if number not in self._runs:
            trial = self._trials[number]
            content = self.checkpoints.get(trial.checkpoint) if trial.checkpoint else None
            # a trial that begins with another one's model has settings of its own
            parent = None if trial.rounds or not trial.origin else self._trials[trial.parent].config
            self._runs[number] = TrialRun(
                self.build, self.seed, number, trial.config, content, parent, self.step.effects.read_by_build
            )  # fmt: skip
        return self._runs[number]

    def _checkpoint(self, run: TrialRun) -> Content:
        """Return the checkpoint of a trial, and warn once of each class whose state is not all in it."""
        lost: dict[type, str] = {}
        content = run.checkpoint(lost)
        for cls, name in lost.items():
            if cls not in self._lossy:
                self._lossy.add(cls)
                log(WARNING, "%s.%s cannot be saved, so a trial that is promoted or resumed goes on with a "
                    "new one; give the strategy state_dict() and load_state_dict(state) if it holds state",
                    cls.__name__, name)  # fmt: skip
        return content

    # -- places --------------------------------------------------------------------------------

    def _running(self) -> list[FederatedTrial]:
        return [trial for trial in self.trials if trial.runs]

    def _fill(self) -> None:
        most, rounds = self.search.num_trials, self.schedule.rounds
        while len(self._running()) < self.search.num_parallel:
            choice = self.schedule.choose(self.trials)
            if isinstance(choice, NewTrial) and most is not None and len(self._trials) >= most:
                # the best trial runs to the end if nothing else is left to do and none has a whole run
                best = next(iter(ranking(self.trials)), None)
                done = self._running() or any(trial.round >= rounds for trial in self.trials)
                choice = None if best is None or done else GoOn(best.number, rounds)
            if choice is None:
                return
            if isinstance(choice, GoOn):
                self._commit(changed={str(choice.trial): {"target": choice.target}})
            else:
                self._begin(choice)

    def _begin(self, choice: NewTrial) -> None:
        new: dict[str, Any] = {"bracket": choice.bracket, "target": choice.target}
        point = choice.point
        if point is None:
            point = self.proposals.propose(self.trials, self.schedule.rungs_of(choice.bracket))
        else:
            parent = self._trials[choice.parent]
            new |= {"parent": parent.number, "born": parent.round, "origin": parent.checkpoint}
        self._commit(point, new=new)

    # -- rounds --------------------------------------------------------------------------------

    def _one_round(self) -> None:
        """Do a round of every running trial for which there are clients."""
        running, runs, nodes = self._ready()
        shares = self._shares.assign(running, nodes)
        numbers = {trial.number: trial.round + 1 for trial in running}
        rounds: dict[str, dict[str, Any]] = {}
        failures: dict[str, dict[str, str]] = {}
        wasted = self._wasted
        for number, result in self.step.run(runs, numbers, shares, nodes).items():
            if isinstance(result, TrialRound):
                digest = self.checkpoints.put(*self._checkpoint(runs[number]))
                blocks = sorted({self._shares.block_of[client] for client in shares[number]})
                rounds[str(number)] = asdict(replace(result, checkpoint=digest, blocks=blocks))
                self._attempts.pop(number, None)
                continue
            if result.reason in MISTAKES.values() and not self._succeeded():
                raise ConfigError(result.reason)  # before the journal has a trial that failed
            wasted += len(shares[number])
            self._runs.pop(number)  # its state may be that of a half-done round
            attempts = self._attempts[number] = self._attempts.get(number, 0) + 1
            if not result.lost or attempts >= MAX_ATTEMPTS:
                failures[str(number)] = {"failure": result.reason}
            else:
                log(WARNING, "Trial %d repeats round %d: %s",
                    number, numbers[number], printable(result.reason))  # fmt: skip
        self._commit(rounds=rounds, changed=failures, wasted=wasted)
        self._report([int(name) for name in (*rounds, *failures)])
        for number in list(self._runs):
            if not self._trials[number].runs:
                del self._runs[number]  # promoted trials go on from their checkpoint
        self._collect()
        if any(done["round"] == 1 for done in rounds.values()):
            self.step.effects.warn(self.trials)
        for callback in self.callbacks:
            if not isinstance(callback, Callback):
                callback(TunerProgress(tuple(self.trials), self.spent))
        self.trackers.round_ended(self.trials, {"client_rounds": float(self.spent)})

    def _ready(self) -> tuple[list[FederatedTrial], dict[int, TrialRun], list[int]]:
        """Return the trials that do a round now, their live states, and the connected clients."""
        grid, running = self.step.grid, self._running()
        runs = {trial.number: self.run_of(trial.number) for trial in running}
        least = max(least_clients(run.strategy) for run in runs.values())
        nodes = sorted(grid.get_node_ids())
        if not self._begun and len(nodes) // least < len(running):
            raise ConfigError(
                f"num_parallel: expected at most {max(len(nodes) // least, 1)}, because {len(nodes)} clients "
                f"are connected and the strategy waits for {least}, got {self.search.num_parallel}; "
                "start more clients, or lower the strategy's min_available_nodes, min_train_nodes and "
                "min_evaluate_nodes"
            )
        self._begun = True
        if len(nodes) < least:
            nodes = self.step.wait_for_clients(least, least)
        # if clients have left, there may be enough for fewer trials only: the earliest ones go on
        chosen = running[: max(len(nodes) // least, 1)]
        if len(chosen) < len(running):
            log(WARNING, "%d of %d trials wait: %d clients are connected, and each trial needs %d",
                len(running) - len(chosen), len(running), len(nodes), least)  # fmt: skip
        return chosen, {trial.number: runs[trial.number] for trial in chosen}, nodes

    def _collect(self) -> None:
        """Remove the checkpoints that no trial needs: those of earlier rounds and of failed trials."""
        self.checkpoints.collect({t.checkpoint for t in self.trials if t.checkpoint and not t.failure})

    def _report(self, numbers: Sequence[int]) -> None:
        best, sign = next(iter(ranking(self.trials)), None), self.step.judge.sign
        budget = "" if self.budget is None else f"/{self.budget}"
        about = "" if best is None else f", best {sign * best.value:.4g} by trial {best.number}"
        for trial in map(self._trials.__getitem__, numbers):
            if trial.failure:
                log(WARNING, "Trial %d failed: %s", trial.number, printable(trial.failure))
            else:
                log(INFO, "[%d%s client-rounds] trial %d, round %d/%d: %s %.4g%s",
                    self.spent, budget, trial.number, trial.round, self.schedule.rounds,
                    self.step.metric.name, sign * trial.value, about)  # fmt: skip

    # -- the end -------------------------------------------------------------------------------

    def _check_failures(self, *, at_the_end: bool = False) -> None:
        """Raise ObjectiveError if trials fail one after the other and none has succeeded."""
        failed = [trial.failure for trial in self.trials if trial.failure]
        if self._succeeded():
            return
        if len(failed) >= MAX_FAILED or (at_the_end and failed):
            raise ObjectiveError(
                f"trials: expected one that succeeds, got {len(failed)} that failed; the last one: "
                f"{failed[-1]}"
            )
        if at_the_end:
            raise ConfigError("budget: expected enough for one round, got a run without any")

    def _succeeded(self) -> bool:
        return any(trial.has_value for trial in self.trials)

    def ranking(self) -> list[FederatedTrial]:
        """Return the trials that have a value from the best to the worst, as the surrogate sees them."""
        return ranking(self.trials, self.proposals, self.schedule.rungs_of(0))

    def _judge_finalists(self) -> None:
        for trial in self.ranking()[: self.step.judge.finalists]:
            if trial.judged is not None:
                continue  # before the interruption
            nodes = sorted(self.step.grid.get_node_ids())
            result = self.step.judge_on(self.run_of(trial.number), trial.round, nodes)
            self._runs.pop(trial.number, None)
            if isinstance(result, Failure):
                log(WARNING, "Finalist %d was not judged: %s", trial.number, printable(result.reason))
                continue
            self._commit(changed={str(trial.number): {"judged": result.value}})
            log(INFO, "Finalist %d on all clients: %s %.4g",
                trial.number, self.step.metric.name, self.step.judge.sign * result.value)  # fmt: skip
