"""The tuner's loop: give free places to trials, do one round of all of them, write it down."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from logging import INFO, WARNING

from flwr.common.logger import log
from flwr.serverapp import Grid

from fbo_flower.errors import ConfigError, ObjectiveError, printable
from fbo_flower.federated.checkpoints import Checkpoints
from fbo_flower.federated.grids import least_clients
from fbo_flower.federated.journal import JUDGED, STEP, TunerJournal, apply, places_event, step_event
from fbo_flower.federated.proposals import Proposals, ranking
from fbo_flower.federated.records import Trial, TrialRound, client_rounds
from fbo_flower.federated.schedules import Copy, GoOn, Schedule, Start
from fbo_flower.federated.settings import Clients, Search
from fbo_flower.federated.shares import Shares
from fbo_flower.federated.step import LEGACY, Failure, Step, wait_for_clients
from fbo_flower.federated.trial_run import TrialRun, TrialSetup
from fbo_flower.storage import Event
from fbo_flower.strategies.exchange import interruptible

MAX_ATTEMPTS = 3  # at a round for which no client can be reached
MAX_FAILED = 5  # trials that fail before the first one succeeds


@dataclass(frozen=True)
class TunerProgress:
    """What callbacks are told after every round.

    Attributes
    ----------
    trials : all trials so far
    spent : client-rounds so far
    """

    trials: tuple[Trial, ...]
    spent: int


@dataclass(eq=False)
class Tuner:
    """Runs trials over a federation.

    Parameters
    ----------
    setup, step, schedule, proposals : its parts
    journal, checkpoints : where it writes
    budget : client-rounds after which no round begins; None: no limit
    search : how many trials there are, and how many run side by side
    finalists : trials whose models are judged by all clients at the end
    clients : how long to wait for clients
    callbacks : called after every round
    """

    setup: TrialSetup
    step: Step
    schedule: Schedule
    proposals: Proposals
    journal: TunerJournal
    checkpoints: Checkpoints
    budget: int | None
    search: Search
    finalists: int
    clients: Clients
    callbacks: Sequence[Callable[[TunerProgress], None]]

    def __post_init__(self) -> None:
        self.trials: dict[int, Trial] = {}
        self._runs: dict[int, TrialRun] = {}
        self._shares = Shares(self.search.num_parallel, self.setup.seed)
        self._attempts: dict[int, int] = {}
        self._wasted = 0
        self._begun = False

    @property
    def spent(self) -> int:
        """Client-rounds so far, those of rounds that brought nothing included."""
        return client_rounds(self.trials) + self._wasted

    def replay(self, events: list[Event]) -> None:
        """Bring the tuner to the state that a journal describes."""
        for event in events:
            apply(self.trials, event, self.proposals.space)
            if event.kind == STEP:
                visits: Mapping[str, list[int]] = event.values["visits"]  # type: ignore[assignment]  # as written
                for name, counts in visits.items():
                    self._shares.put_visits(int(name), counts)
                self._wasted = int(str(event.values["wasted"]))
        self._collect()
        if events:
            running = sum(trial.runs for trial in self.trials.values())
            log(INFO, "Resumed with %d trials, %d of them under way, after %d client-rounds",
                len(self.trials), running, self.spent)  # fmt: skip

    def run(self, grid: Grid) -> None:
        """Run until the budget is spent, or no trial is left.

        Raises
        ------
        ConfigError
            If too few clients connect, or the metric is missing.
        ObjectiveError
            If every trial failed.
        """
        with interruptible(self.step.stop):
            wait_for_clients(grid, self.clients.number, 1, self.clients.wait_seconds, self.step.stop)
            while self.budget is None or self.spent < self.budget:
                self._fill()
                if not self._running():
                    break
                self._one_round(grid)
                self._check_failures()
            self._check_failures(at_the_end=True)
            self._judge_finalists(grid)

    def run_of(self, number: int) -> TrialRun:
        """Return a trial's live state, from its last checkpoint if it is not in memory."""
        if number not in self._runs:
            trial = self.trials[number]
            content = self.checkpoints.get(trial.checkpoint) if trial.checkpoint else None
            # a trial that begins with another one's model has settings of its own
            parent = None if trial.rounds or not trial.origin else self.trials[trial.parent].config
            self._runs[number] = TrialRun(self.setup, number, trial.config, content, parent)
        return self._runs[number]

    # -- places --------------------------------------------------------------------------------

    def _running(self) -> list[int]:
        return [trial.number for trial in self.trials.values() if trial.runs]

    def _fill(self) -> None:
        """Give free places to trials and write that down."""
        new: dict[int, Trial] = {}
        targets: dict[int, int] = {}
        while len(self._running()) < self.search.num_parallel:
            choice = self.schedule.choose(list(self.trials.values()))
            if choice is None:
                break
            if not isinstance(choice, GoOn):
                number = len(self.trials)
                if self.search.num_trials is not None and number >= self.search.num_trials:
                    targets |= self._last_leave()
                    break
                self.trials[number] = new[number] = self._begun_by(choice, number)
            else:
                targets[choice.trial] = choice.target
                self.trials[choice.trial] = self.trials[choice.trial].until(choice.target)
        if new or targets:
            self.journal.write(places_event(new, targets))

    def _begun_by(self, choice: Start | Copy, number: int) -> Trial:
        """Return a new trial."""
        space = self.proposals.space
        if isinstance(choice, Copy):
            parent = self.trials[choice.trial]
            return Trial(
                number, space.decode(choice.point), choice.point, choice.bracket, target=choice.target,
                parent=parent.number, born=parent.round, origin=parent.checkpoint,
            )  # fmt: skip
        trials = list(self.trials.values())
        point = self.proposals.propose(trials, self.schedule.rungs_of(choice.bracket))
        return Trial(number, space.decode(point), point, choice.bracket, target=choice.target)

    def _last_leave(self) -> dict[int, int]:
        """Let the best trial run to the end if nothing else is left to do and none has a whole run."""
        best, rounds = self.best(), self.schedule.rounds
        if best is None or self._running() or any(t.round >= rounds for t in self.trials.values()):
            return {}
        self.trials[best.number] = best.until(rounds)
        return {best.number: rounds}

    # -- rounds --------------------------------------------------------------------------------

    def _one_round(self, grid: Grid) -> None:
        """Do a round of every running trial for which there are clients."""
        running = self._running()
        runs = {number: self.run_of(number) for number in running}
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
            nodes = wait_for_clients(grid, least, least, self.clients.wait_seconds, self.step.stop)
        # if clients have left, there may be enough for fewer trials only: the earliest ones go on
        chosen = running[: max(len(nodes) // least, 1)]
        if len(chosen) < min(len(running), self.search.num_parallel):
            log(WARNING, "%d of %d trials wait: %d clients are connected, and each trial needs %d",
                len(running) - len(chosen), len(running), len(nodes), least)  # fmt: skip
        shares = self._shares.assign(chosen, nodes)
        rounds = {number: self.trials[number].round + 1 for number in chosen}
        found = self.step.run({n: runs[n] for n in chosen}, rounds, shares, nodes)
        results: dict[int, TrialRound | str] = {}
        for number, result in found.items():
            if isinstance(result, TrialRound):
                digest = self.checkpoints.put(*runs[number].checkpoint())
                results[number] = replace(result, checkpoint=digest)
                self._attempts.pop(number, None)
            elif result.reason == LEGACY and not self._succeeded():
                raise ConfigError(LEGACY)  # before the journal has a trial that failed
            else:
                self._wasted += len(shares[number])
                self._runs.pop(number)  # its state may be that of a half-done round
                attempts = self._attempts[number] = self._attempts.get(number, 0) + 1
                if not result.lost or attempts >= MAX_ATTEMPTS:
                    results[number] = result.reason
                else:
                    log(WARNING, "Trial %d repeats round %d: %s",
                        number, rounds[number], printable(result.reason))  # fmt: skip
        self._shares.note({number: shares[number] for number in results})
        visits = {number: self._shares.visits(number) for number in chosen}
        event = step_event(results, visits, self._wasted)
        self.journal.write(event)
        apply(self.trials, event, self.proposals.space)
        self._report(results)
        for number in list(self._runs):
            if not self.trials[number].runs:
                del self._runs[number]  # promoted trials go on from their checkpoint
        self._collect()
        for callback in self.callbacks:
            callback(TunerProgress(tuple(self.trials.values()), self.spent))

    def _collect(self) -> None:
        """Remove the checkpoints that no trial needs: those of earlier rounds and of failed trials."""
        trials = self.trials.values()
        self.checkpoints.collect({t.checkpoint for t in trials if t.checkpoint and not t.failure})

    def _report(self, results: Mapping[int, TrialRound | str]) -> None:
        """Log a line for each trial's round."""
        best = self.best()
        budget = "" if self.budget is None else f"/{self.budget}"
        for number, done in results.items():
            if isinstance(done, str):
                log(WARNING, "Trial %d failed: %s", number, printable(done))
                continue
            about = "" if best is None else f", best {self._shown(best.value):.4g} by trial {best.number}"
            log(INFO, "[%d%s client-rounds] trial %d, round %d/%d: %s %.4g%s",
                self.spent, budget, number, done.round, self.schedule.rounds,
                self.step.metric, self._shown(done.value), about)  # fmt: skip

    def _shown(self, value: float) -> float:
        return self.step.sign * value

    # -- the end -------------------------------------------------------------------------------

    def _check_failures(self, *, at_the_end: bool = False) -> None:
        """Raise ObjectiveError if trials fail one after the other and none has succeeded."""
        trials = self.trials.values()
        failed = [trial for trial in trials if trial.failure]
        if self._succeeded():
            return
        if len(failed) >= MAX_FAILED or (at_the_end and failed):
            raise ObjectiveError(
                f"trials: expected one that succeeds, got {len(failed)} that failed; the last one: "
                f"{failed[-1].failure}"
            )
        if at_the_end and not failed:
            raise ConfigError("budget: expected enough for one round, got a run without any")

    def _succeeded(self) -> bool:
        return any(trial.rounds and not trial.failure for trial in self.trials.values())

    def best(self) -> Trial | None:
        """Return the trial with the best value so far; None before the first round."""
        return next(iter(ranking(list(self.trials.values()))), None)

    def ranking(self) -> list[Trial]:
        """Return the trials from the best to the worst, see `recommend`."""
        return ranking(list(self.trials.values()), self.proposals, self.schedule.rungs_of(0))

    def _judge_finalists(self, grid: Grid) -> None:
        """Evaluate the models of the best trials on all clients."""
        for trial in self.ranking()[: self.finalists]:
            if trial.judged is not None:
                continue  # before the interruption
            result = self.step.judge_on(self.run_of(trial.number), trial.round, sorted(grid.get_node_ids()))
            self._runs.pop(trial.number, None)
            if isinstance(result, Failure):
                log(WARNING, "Finalist %d was not judged: %s", trial.number, printable(result.reason))
                continue
            event = Event(JUDGED, values={"trial": trial.number, "value": result[0]})
            self.journal.write(event)
            apply(self.trials, event, self.proposals.space)
            log(INFO, "Finalist %d on all clients: %s %.4g",
                trial.number, self.step.metric, self._shown(result[0]))  # fmt: skip
