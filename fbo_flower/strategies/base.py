"""`TuningStrategy`: an algorithm as a Flower strategy.

The strategy registers the agents, sends each agent its task, refuses malformed replies, and gives the valid
ones to the algorithm. If an agent fails, sends a malformed reply or answers too late, the study continues
without that reply.
"""

from __future__ import annotations

import inspect
import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from logging import INFO
from pathlib import Path
from typing import Any, ClassVar

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.common.logger import log
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from fbo_flower.algorithms import Algorithm, with_secure_sums
from fbo_flower.algorithms.capabilities import (
    DescribesProgress,
    DrawsInSecret,
    ReportsResults,
    ServerResults,
    WarmStartable,
)
from fbo_flower.algorithms.options import canonical_json, check_number
from fbo_flower.algorithms.protocol import DEFAULT_ROUNDS
from fbo_flower.algorithms.records import Phase
from fbo_flower.algorithms.summing import unwrapped, unwrapped_state
from fbo_flower.errors import ConfigError, printable
from fbo_flower.numerics.seeding import fresh_entropy
from fbo_flower.numerics.threads import single_thread
from fbo_flower.space.space import SearchSpace
from fbo_flower.storage import StudyJournal
from fbo_flower.storage.warm_start import WarmStart
from fbo_flower.strategies.async_loop import AsyncLoop, check_mode, check_staleness
from fbo_flower.strategies.callbacks import Notifier, check_callbacks
from fbo_flower.strategies.recorder import RoundProgress
from fbo_flower.strategies.replies import NO_REPLY, read_reply
from fbo_flower.strategies.round_loop import RoundLoop
from fbo_flower.strategies.send_and_receive import Stopped
from fbo_flower.strategies.settings import ASYNC, SYNC, StrategySettings, fixed_settings, study_settings
from fbo_flower.strategies.study_end import end_study
from fbo_flower.strategies.study_run import StudyRun
from fbo_flower.strategies.study_start import StudyStart
from fbo_flower.study.study import Study
from fbo_flower.trackers.callback import Callback


class TuningStrategy(Strategy):
    """Base class of the strategies of this package; each subclass names its algorithm.

    Parameters
    ----------
    num_agents : agents to wait for before the first round; None: wait until the number of connected nodes
        stops changing
    seed : seed of the server's random numbers. None, for deployments: drawn from the operating system, and
        noise and samples for differential privacy are not drawn from it or from any seed. With a seed they
        are, and protect nobody who knows it
    fraction : fraction of the connected agents that get a task in a round, drawn anew each round
    wait_seconds : how long to wait for the agents before the first round
    round_timeout : how many seconds a half-round may last; later replies are dropped
    quorum : fraction of the tasks whose replies close a half-round
    space : the search space that every agent must have; None: the one that all agents have
    action : sends messages to `@app.train(action)` and `@app.query(action)`; None: to `@app.train()` and
        `@app.query()`
    label : name of this run in tables and figures; None: the algorithm's name
    minimize : whether the agents' objective is a loss with its sign changed; logs and the study then show
        the loss. Not needed if the agents say so themselves, as those of `client_app(..., minimize=True)`
    on_round : function that is called after every round
    callbacks : are told of disclosed trials, rounds and the end, see `fbo_flower.trackers`
    pool_curves : whether agents that consent (`disclose_curves`) send medians of their learning curves, and
        all agents with the rule "federated" get the pooled ones, see `clients.Pruning`
    options : options of the algorithm, by name

    Raises
    ------
    ConfigError
        If a setting or option is unknown or out of bounds.
    """

    algorithm_class: ClassVar[type[Algorithm[Any]]]

    def __init__(
        self,
        *,
        num_agents: int | None = None,
        seed: int | None = None,
        fraction: float = 1.0,
        wait_seconds: float = 120.0,
        round_timeout: float = 3600.0,
        quorum: float = 1.0,
        space: SearchSpace | None = None,
        action: str | None = None,
        label: str | None = None,
        minimize: bool = False,
        on_round: Callable[[RoundProgress], None] | None = None,
        callbacks: Sequence[Callback] = (),
        pool_curves: bool = False,
        **options: object,
    ) -> None:
        self.algorithm = with_secure_sums(self.algorithm_class.from_options(options))
        self._settings = StrategySettings(
            num_agents=num_agents,
            seed=seed,
            fraction=fraction,
            wait_seconds=wait_seconds,
            round_timeout=round_timeout,
            quorum=quorum,
            space=space,
            message_suffix=f".{action}" if action else "",
            label=label or self.algorithm.name,
            minimize=minimize,
            on_round=on_round,
            callbacks=check_callbacks(callbacks),
            pool_curves=pool_curves,
        )
        self._seed = seed
        self._mode = SYNC
        self._max_staleness: int | None = None
        self._stop = threading.Event()
        self._run: StudyRun | None = None
        self._notifier: Notifier | None = None
        self.study: Study | None = None  # of the run so far, also after an interruption

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Add the algorithm's options to the signature that `help()` and editors show."""
        super().__init_subclass__(**kwargs)
        if "algorithm_class" in cls.__dict__:
            own = inspect.signature(TuningStrategy.__init__).parameters
            shared = [
                p for p in own.values() if p.kind is not inspect.Parameter.VAR_KEYWORD and p.name != "self"
            ]
            options = [
                inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default)
                for name, default in cls.algorithm_class.option_defaults().items()
            ]
            cls.__signature__ = inspect.Signature([*shared, *options])  # type: ignore[attr-defined]  # read by inspect

    # -- the run -------------------------------------------------------------------------------

    def start(  # type: ignore[override]  # a tuning run has no initial model and returns a study
        self,
        grid: Grid,
        num_rounds: int | None = None,
        *,
        journal: str | os.PathLike[str] | None = None,
        resume: bool = False,
        warm_start: str | os.PathLike[str] | None = None,
        mode: str = SYNC,
        max_staleness: int | None = None,
    ) -> Study:
        """Run the algorithm over the grid and return the study: disclosed trials and measured rounds.

        Parameters
        ----------
        grid : Flower's grid, as the main function of a ServerApp gets it
        num_rounds : at least 1; None: run until the algorithm is finished, and `DEFAULT_ROUNDS` rounds if
            the algorithm never finishes
        journal : file that stores every task and reply, so that an interrupted run can be resumed
        resume : continue the study in `journal` where it was interrupted, in a new Flower run and with new
            node ids; an empty journal starts a new study. `num_rounds` may be larger than before
        warm_start : a file with the `export_messages` of an earlier study, or that study's directory
        mode : "sync": a round ends when its agents have answered. "async": each agent gets its next task as
            soon as it has answered, and a round is as many answers as there are connected agents
        max_staleness : in the mode "async", how many rounds may end between a task and its answer. What an
            older answer holds for other agents is dropped; its evaluations count and stay at the agent. None:
            any number

        Raises
        ------
        ConfigError
            If `num_rounds` is not positive, the algorithm cannot run in this mode, too few agents connected,
            or they have different search spaces.
        JournalError
            If another process uses the journal, or it holds a study with other settings; the error lists the
            differences.
        ObjectiveError
            If every evaluation failed, or not one valid reply came. `strategy.study` holds the study.
        """
        if num_rounds is not None:
            check_number("num_rounds", num_rounds, 1, integer=True)
        elif not self.algorithm.finishes:
            num_rounds = DEFAULT_ROUNDS
        check_mode(
            mode, self.algorithm.barrier, self.algorithm.name, self._settings.fraction, self._settings.quorum
        )
        check_staleness(max_staleness, mode)
        self._mode, self._max_staleness = mode, max_staleness
        if resume and journal is None:
            raise ConfigError("resume: expected the journal of a study, got none; pass journal=FILE")
        started, status = time.perf_counter(), "failed"
        self._run = self.study = self._notifier = None
        messages = None if warm_start is None else WarmStart.load(Path(warm_start), self.algorithm.name)
        with ExitStack() as stack:
            opened = None if journal is None else stack.enter_context(StudyJournal(journal))
            try:
                with single_thread():
                    self._run = self._begin(grid, opened, resume, messages)
                    self._run.num_rounds = num_rounds
                    self.summary()
                    self._notifier = Notifier(self._settings.callbacks, self._run, num_rounds)
                    self._notifier.round_ended()  # rounds that an earlier process ran
                    self._loop().run_rounds(grid, num_rounds)
                end_study(grid, self._run, self._settings, self._stop)
                self._run.note_end()
                status = "finished"
            except (KeyboardInterrupt, Stopped):
                status = "interrupted"
                raise
            finally:
                self._stop.clear()  # so that the next start() is not stopped as well
                if self._run is not None:
                    seconds = time.perf_counter() - started
                    settings = study_settings(self._settings, self._run, num_rounds, status, seconds)
                    self.study = self._run.recorder.study(settings, self._results(self._run))
                    if self._notifier is not None:
                        self._notifier.finished(self.study)
        return self.study

    def export_messages(self) -> WarmStart | None:
        """Return the messages from which another study can start; None if there are none.

        Call it after `start`, also after an interruption.
        """
        core = unwrapped(self.algorithm)
        if self._run is None or not isinstance(core, WarmStartable):
            return None
        arrays = core.export_messages(unwrapped_state(self.algorithm, self._run.state))
        if not arrays:
            return None
        return WarmStart(self.algorithm.name, self._run.recorder.space.digest, arrays)

    def stop(self) -> None:
        """Stop a running `start` from another thread; it raises `Stopped` the next time it waits."""
        self._stop.set()

    def _begin(
        self, grid: Grid, journal: StudyJournal | None, resume: bool, warm_start: WarmStart | None
    ) -> StudyRun:
        events = [] if journal is None else list(journal.events())
        if journal is not None and events and not resume:
            raise ConfigError(
                f"journal: expected a new file, got {journal.path}, which holds a study; pass resume=True to "
                "continue that study"
            )
        recorded = None if journal is None else journal.settings
        if self._seed is None:
            self._seed = fresh_entropy() if recorded is None else int(str(recorded["seed"]))
        if journal is not None:
            defaults = self.algorithm_class.option_defaults()
            journal.begin(
                fixed_settings(
                    self._settings,
                    self.algorithm,
                    defaults,
                    self._seed,
                    warm_start,
                    recorded or {},
                    self._mode,
                    self._max_staleness,
                )
            )
        study_start = StudyStart(
            self.algorithm, self._settings, warm_start, self._stop, self._mode == ASYNC, self._max_staleness
        )
        return study_start.start(grid, self._seed, journal, events)

    def _tell(self, phase: Phase, server_round: int) -> None:
        """Give the replies of a half-round to the algorithm, log its progress, and note who failed."""
        run = self._current()
        core, before = unwrapped(self.algorithm), unwrapped_state(self.algorithm, run.state)
        failed = [agent for agent, reply in run.replies.items() if reply.packed is None and not reply.refused]
        run.tell(phase, server_round, NO_REPLY)
        if isinstance(core, DescribesProgress):
            for line in core.progress_lines(unwrapped_state(self.algorithm, run.state), before):
                log(INFO, "%s", printable(line))
        for agent in failed:
            run.registry.mark_suspect(agent)

    def _results(self, run: StudyRun) -> ServerResults | None:
        if not isinstance(run.algorithm, ReportsResults):
            return None
        results = run.algorithm.results(run.state)
        if results is None or not isinstance(unwrapped(self.algorithm), DrawsInSecret):
            return results
        source = "seed" if run.repeatable else "system"
        privacy = {"noise_from": source, **results.privacy}  # the algorithm knows if agents add the noise
        return replace(results, privacy=privacy)

    def _current(self) -> StudyRun:
        if self._run is None:
            raise ConfigError(
                f"{type(self).__name__}: expected a running study, got none; call start(grid, num_rounds=...)"
            )
        return self._run

    def _loop(self) -> RoundLoop:
        loop = AsyncLoop if self._mode == ASYNC else RoundLoop
        run = self._current()
        notifier = self._notifier or Notifier((), run, None)
        return loop(run, self._settings, self._stop, self._tell, notifier)

    # -- Flower's interface --------------------------------------------------------------------

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return the messages with this round's tasks; `arrays` and `config` are not used."""
        return self._configure(Phase.TRAIN, server_round, grid)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Give the replies to the algorithm; there is no model to return."""
        self._aggregate(Phase.TRAIN, server_round, replies)
        return None, None

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return the messages with the tasks of this round's second half-round."""
        return self._configure(Phase.EVALUATE, server_round, grid)

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Give the replies of the second half-round to the algorithm."""
        self._aggregate(Phase.EVALUATE, server_round, replies)
        return None

    def _configure(self, phase: Phase, server_round: int, grid: Grid) -> list[Message]:
        run = self._current()
        run.ask(phase, server_round, self._loop().choose_agents(grid, phase, server_round))
        return list(run.messages(phase, server_round, self._settings.message_suffix).values())

    def _aggregate(self, phase: Phase, server_round: int, messages: Iterable[Message]) -> None:
        run = self._current()
        agents = {run.registry.nodes[sent.agent]: sent.agent for sent in run.sent}
        by_node = {message.metadata.src_node_id: message for message in messages}
        replies = {agents[node]: read_reply(message) for node, message in by_node.items() if node in agents}
        run.on_replies(phase, server_round, replies)
        self._tell(phase, server_round)

    def summary(self) -> None:
        """Log the algorithm and the options that differ from their defaults; the study holds them all."""
        defaults = unwrapped(self.algorithm).option_defaults()
        options = [
            f"{name}={value!r}"
            for name, value in self.algorithm.options().items()
            if name not in defaults or canonical_json(value) != canonical_json(defaults[name])
        ]
        text = f"{self._settings.label} with {', '.join(options) or 'its default options'}"
        log(INFO, "%s", printable(text))
