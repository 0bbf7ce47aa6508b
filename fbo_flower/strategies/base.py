"""`TuningStrategy`: an algorithm as a Flower strategy.

    FTS().start(grid, num_rounds=25, journal="study.db")         our loop: quorum, journal, asynchrony
    Strategy.start(FTS(), grid, ArrayRecord(), num_rounds=25)    Flower's own loop: the same trials

The strategy registers the agents, sends each agent its task, refuses malformed replies, and gives the valid
ones to the algorithm. If an agent fails, sends a malformed reply or answers too late, the study continues
without that reply.
"""

from __future__ import annotations

import inspect
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from logging import INFO
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from flwr.app import Array as FlowerArray
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.common.logger import log
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from fbo_flower.algorithms import Algorithm
from fbo_flower.algorithms.definition import check_options
from fbo_flower.algorithms.options import canonical_json
from fbo_flower.algorithms.protocol import DEFAULT_TRIALS, with_budget
from fbo_flower.algorithms.records import Phase
from fbo_flower.algorithms.registry import register
from fbo_flower.errors import ConfigError, kind_of, printable
from fbo_flower.numerics.threads import single_thread
from fbo_flower.space.checks import check_flag
from fbo_flower.space.copies import own
from fbo_flower.space.space import SearchSpace
from fbo_flower.storage import Event, StudyJournal
from fbo_flower.storage.warm_start import WarmStart
from fbo_flower.strategies.exchange import Clocked, Exchange, Exchanges, Stopped, drive
from fbo_flower.strategies.process import ending_with_its_superlink, interruptible
from fbo_flower.strategies.recorder import RoundProgress
from fbo_flower.strategies.rounds import Rounds
from fbo_flower.strategies.settings import (
    EVALUATE,
    LEGACY,
    SYNC,
    TRAIN,
    EvaluateFn,
    StrategySettings,
    TuningResult,
    check_callbacks,
    check_evaluate_fn,
    check_extent,
    check_no_config,
    check_no_fedavg,
    half_of,
    messages_of,
)
from fbo_flower.strategies.start_and_end import begin_study, end_study, study_settings
from fbo_flower.study.study import Study
from fbo_flower.trackers.callback import Callback
from fbo_flower.wire.protections import check_unprotected


class TuningStrategy(Strategy):
    """Runs an algorithm; `strategies.FTS(num_agents=5, advice="portfolio")` makes its algorithm itself.

    Parameters
    ----------
    algorithm : the algorithm, such as `algorithms.FTS(advice="portfolio")`, or one of your own class. None:
        the one of the subclass, with `options`
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
    callbacks : are told of disclosed trials, rounds and the end, see `fbo_flower.trackers`; an error of
        theirs is logged, and the run goes on. A function is called with the `RoundProgress` of every round
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
        algorithm: Algorithm[Any] | None = None,
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
        callbacks: Sequence[Callback | Callable[[RoundProgress], None]] = (),
        pool_curves: bool = False,
        **options: object,
    ) -> None:
        self._given = self.algorithm = self._made(algorithm, options)
        check_options(self.algorithm)
        check_callbacks(callbacks)
        self._settings = StrategySettings(
            num_agents=num_agents,
            seed=seed,
            fraction=fraction,
            wait_seconds=wait_seconds,
            round_timeout=round_timeout,
            quorum=quorum,
            space=space,
            action=action,
            label=self.algorithm.name if label is None else label,
            callbacks=tuple(callbacks),
            pool_curves=pool_curves,
        )
        # a simulation adds regret and simulated times
        self.complete: Callable[[Study], Study] = lambda study: study
        self._seed = self._settings.seed
        self._stop = threading.Event()
        self._rounds: Rounds | None = None
        self._study: Study | None = None
        self._result = TuningResult()
        self._evaluate_fn: EvaluateFn | None = None
        self._started = 0.0
        self._exchanges: Exchanges[Any] | None = None  # of the round that Flower's loop has begun
        self._open: Exchange[str] | None = None  # the one of them whose replies are awaited
        self._rounds_of_hooks = 0

    @classmethod
    def _made(cls, algorithm: Algorithm[Any] | None, options: Mapping[str, object]) -> Algorithm[Any]:
        """Return the algorithm that was passed, or the one of this class."""
        kind = getattr(cls, "algorithm_class", None)
        check_no_fedavg(options if kind is None else options.keys() - kind.option_defaults().keys())
        if algorithm is None and kind is not None:
            made: Algorithm[Any] = kind.from_options(options)
            return made
        if not isinstance(algorithm, Algorithm) or options or not isinstance(algorithm, kind or Algorithm):
            name = "an algorithm" if kind is None else f"options of {kind.name}"
            given = f"and {', '.join(options)}" if options else ""
            raise ConfigError(
                f"{cls.__name__}: expected {name}, got {kind_of(algorithm)} {given}".rstrip()
                + "; pass TuningStrategy(algorithms.FTS(advice='portfolio'), num_agents=5)"
            )
        register(type(algorithm))
        return algorithm

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

    if not TYPE_CHECKING:  # type checkers report misspelt names

        def __getattr__(self, name):
            """Raise ConfigError if Flower's older server or one of its wrappers uses this strategy."""
            if name in LEGACY:
                raise ConfigError(
                    f"{type(self).__name__}.{name}: expected a ServerApp of Flower's message API, got the "
                    "older ServerApp(server_fn=...) or a strategy of it; write @app.main() and call "
                    "strategy.start(grid, num_rounds=...), with dp-fts for differential privacy"
                )
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    # -- our loop ------------------------------------------------------------------------------

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord | None = None,
        num_rounds: int | None = None,
        timeout: float | None = None,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: EvaluateFn | None = None,
        *,
        journal: str | os.PathLike[str] | None = None,
        resume: bool = False,
        warm_start: str | os.PathLike[str] | None = None,
        mode: str = SYNC,
        max_staleness: int | None = None,
        num_trials: int | None = None,
    ) -> TuningResult:
        """Run the algorithm over the grid; its result has the study: disclosed trials and measured rounds.

        The first seven parameters are those of Flower's `Strategy.start`. That method gives the same trials;
        it knows no journal and no quorum, and `finish` must follow it.

        Parameters
        ----------
        grid : Flower's grid, as the main function of a ServerApp gets it
        initial_arrays : `result.arrays` of an earlier study, from whose messages this one starts; None or
            empty: it starts from nothing
        num_rounds : at least 1; None: run for `num_trials`, or until the algorithm is finished
        timeout : seconds that a half-round may last; None: `round_timeout` of the strategy
        train_config, evaluate_config : None or empty, because a task holds only messages of the algorithm
        evaluate_fn : `evaluate_fn(round, arrays)` is called before the first round and after every round,
            with the arrays from which another study can start
        journal : file that stores every task and reply, so that an interrupted run can be resumed
        resume : continue the study in `journal` where it was interrupted, in a new Flower run and with new
            node ids; an empty journal starts a new study. `num_rounds` may be larger than before
        warm_start : a file with the `export_messages` of an earlier study, or that study's directory
        mode : "sync": a round ends when its agents have answered. "async": each agent gets its next task as
            soon as it has answered, and a round is as many answers as there are connected agents
        max_staleness : in the mode "async", how many rounds may end between a task and its answer. What an
            older answer holds for other agents is dropped; its evaluations count and stay at the agent. None:
            any number
        num_trials : evaluations of each agent, in place of `num_rounds`; with neither there are 25, or as
            many as the algorithm's own budget allows

        Raises
        ------
        ConfigError
            If `num_rounds` or `num_trials` is not positive, both are given, the algorithm cannot run in this
            mode, too few agents connected, or they have different search spaces.
        JournalError
            If another process uses the journal, or it holds a study with other settings; the error lists the
            differences.
        ObjectiveError
            If every evaluation failed, or not one valid reply came. `strategy.study` holds the study.
        """
        num_rounds, num_trials = check_extent(num_rounds, num_trials)
        self.algorithm = with_budget(self._given, num_trials)
        if num_rounds is None and not self.algorithm.budget_option:
            num_trials = num_trials or DEFAULT_TRIALS
        self._settings = replace(self._settings, mode=mode, max_staleness=max_staleness)
        self._settings.check_algorithm(self.algorithm)
        for name, config in (("train_config", train_config), ("evaluate_config", evaluate_config)):
            check_no_config(name, config)
        check_evaluate_fn(evaluate_fn)
        if not isinstance(grid, Grid):
            raise ConfigError(
                f"grid: expected Flower's Grid, got {kind_of(grid)}; call start(grid, ...) in the main "
                "function of a ServerApp"
            )
        if timeout is not None:
            self._settings = replace(self._settings, round_timeout=timeout)
        if check_flag("resume", resume) and journal is None:
            raise ConfigError("resume: expected the journal of a study, got none; pass journal=FILE")
        status = "failed"
        self._forget()
        messages = messages_of(initial_arrays, warm_start, self.algorithm.name)
        with ExitStack() as stack:
            stack.enter_context(interruptible(self._stop))
            grid = stack.enter_context(ending_with_its_superlink(grid))
            opened = None if journal is None else stack.enter_context(StudyJournal(journal))
            try:
                with single_thread():
                    rounds = self._begin(grid, opened, resume, messages, num_rounds)
                    if not self.algorithm.budget_option:
                        rounds.registry.num_trials = num_trials
                    self.summary()
                    rounds.notifier.round_ended()  # rounds that an earlier process ran
                    if evaluate_fn is not None:
                        self._evaluate_fn = evaluate_fn
                        self._call_evaluate_fn(evaluate_fn, 0)
                    clock = grid if rounds.run.asynchronous and isinstance(grid, Clocked) else None
                    drive(grid, rounds.exchanges(), self._stop, clock)
                end_study(rounds)
                rounds.run.write(Event("end"))
                status = "finished"
            except (KeyboardInterrupt, Stopped):
                status = "interrupted"
                raise
            finally:
                self._stop.clear()  # so that the next start() is not stopped as well
                self._close(status)
        return self._result

    @property
    def study(self) -> Study | None:
        """The study of the run so far, also within Flower's own loop; None before the first run."""
        if self._study is None and self._rounds is not None:
            return self._study_so_far("interrupted")
        return self._study

    def finish(self, grid: Grid) -> TuningResult:
        """Make the final exchanges after Flower's own `Strategy.start`, and return the result with the study.

        Algorithms that tell agents at the end what was found (Co-KG, PF-PNE, RFMS) need it. Agents learn that
        the study has ended, and `strategy.study` is complete.

        Raises
        ------
        ConfigError
            If no study has begun.
        ObjectiveError
            If every evaluation failed, or not one valid reply came.
        """
        rounds, status = self._current(), "failed"
        rounds.grid = grid
        try:
            with single_thread():
                drive(grid, rounds.final_exchanges(), self._stop)
            end_study(rounds)
            status = "finished"
        finally:
            self._close(status)
        return self._result

    def _forget(self) -> None:
        self._rounds = self._study = self._exchanges = self._open = self._evaluate_fn = None
        self._rounds_of_hooks = 0
        self._result, self._started = TuningResult(), time.perf_counter()

    def _close(self, status: str) -> None:
        """Put the study and the messages of the run into the result."""
        if self._rounds is None:
            return
        self._study = self._result.study = self._study_so_far(status)
        self._result.arrays = self._arrays()
        self._rounds.notifier.finished(self._study)

    def _study_so_far(self, status: str) -> Study:
        run, seconds = self._current().run, time.perf_counter() - self._started
        described = study_settings(run, status, seconds)
        return self.complete(run.recorder.study(described, run.results()))

    def _arrays(self) -> ArrayRecord:
        """Return the messages from which another study can start, as Flower's arrays."""
        found = self.export_messages()
        arrays = {} if found is None else found.arrays
        return ArrayRecord({name: FlowerArray(np.asarray(array)) for name, array in arrays.items()})

    def _call_evaluate_fn(self, evaluate_fn: EvaluateFn, server_round: int) -> None:
        found = evaluate_fn(server_round, self._arrays())
        if found is not None:
            if not isinstance(found, MetricRecord):
                raise ConfigError(
                    f"evaluate_fn: expected a MetricRecord or None, got {kind_of(found)}; return "
                    "MetricRecord({'loss': loss})"
                )
            self._result.evaluate_metrics_serverapp[server_round] = own(found)

    def _round_ended(self, progress: RoundProgress) -> None:
        for callback in self._settings.callbacks:
            if not isinstance(callback, Callback):
                callback(progress)
        if self._evaluate_fn is not None:
            self._call_evaluate_fn(self._evaluate_fn, progress.server_round)

    def export_messages(self) -> WarmStart | None:
        """Return the messages from which another study can start; None if there are none.

        Call it after `start`, also after an interruption.
        """
        if self._rounds is None:
            return None
        run = self._rounds.run
        arrays = own(self.algorithm.export_messages(run.server.state))
        if not arrays:
            return None
        return WarmStart(self.algorithm.name, run.recorder.space.digest, arrays)

    def stop(self) -> None:
        """Stop a running `start` from another thread; it raises `Stopped` the next time it waits."""
        self._stop.set()

    def _begin(
        self,
        grid: Grid,
        journal: StudyJournal | None,
        resume: bool,
        warm_start: WarmStart | None,
        num_rounds: int | None,
    ) -> Rounds:
        """Register the agents, and first repeat the steps in the journal; return the rounds that are left."""
        self._rounds = rounds = begin_study(
            grid, self.algorithm, self._settings, self._seed,
            stop=self._stop, journal=journal, resume=resume, warm_start=warm_start, num_rounds=num_rounds,
        )  # fmt: skip
        rounds.result, rounds.on_round = self._result, self._round_ended
        self._seed = rounds.run.seed
        return rounds

    def _current(self) -> Rounds:
        if self._rounds is None:
            raise ConfigError(
                f"{type(self).__name__}: expected a running study, got none; call start(grid, num_rounds=...)"
            )
        return self._rounds

    # -- Flower's interface --------------------------------------------------------------------

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return the messages of this round's first half; in the first round, register the agents before.

        Parameters
        ----------
        server_round : a number that is not larger than the last one begins a new study
        arrays : in the first round, messages of an earlier study, as `initial_arrays` of `start`
        config : empty
        """
        check_unprotected("a tuning strategy")
        check_no_config("train_config", config)
        with single_thread():
            if self._rounds is None or server_round <= self._rounds_of_hooks:
                self._forget()
                self._settings = replace(self._settings, mode=SYNC, max_staleness=None)
                self._begin(grid, None, False, messages_of(arrays, None, self.algorithm.name), None)
            self._rounds_of_hooks, rounds = server_round, self._current()
            self._exchanges = self._open = None
            if not rounds.run.server.finished:
                self._exchanges = rounds.round()
                self._go_on(grid, None, until=tuple(Phase))
        return self._messages(TRAIN)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Give the replies to the algorithm.

        Returns
        -------
        The messages from which another study can start, and the numbers of the half-round.
        """
        self._receive(TRAIN, replies)
        return self._arrays(), own(self._result.train_metrics_clientapp.get(self._last_round()))

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return the messages of the round's last exchange; those before it are sent here, on the grid."""
        check_no_config("evaluate_config", config)
        if self._open is not None:
            with single_thread():
                self._go_on(grid, self._open, until=self._current().run.server.phases[-1:])
        return self._messages(EVALUATE)

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Give the replies of the round's last exchange to the algorithm; return the half-round's numbers."""
        self._receive(EVALUATE, replies)
        return own(self._result.evaluate_metrics_clientapp.get(self._last_round()))

    def _go_on(self, grid: Grid, exchange: Exchange[str] | None, until: Sequence[Phase]) -> None:
        """Send exchanges on the grid up to one of these phases, whose messages Flower's loop sends.

        Parameters
        ----------
        exchange : the open one; None: the round begins
        """

        def others() -> Exchanges[Exchange[str] | None]:
            found = exchange or self._next(None)
            while found is not None and found.phase not in until:
                found = self._next((yield found))
            return found

        found = drive(grid, others(), self._stop)
        if found is not None:
            found = replace(found, messages=list(found.messages))
        self._open = found

    def _next(self, answers: Mapping[str, Message | None] | None) -> Exchange[str] | None:
        """Send answers to the round; return its next exchange, None at its end."""
        try:
            return None if self._exchanges is None else self._exchanges.send(answers)  # type: ignore[arg-type]  # None begins
        except StopIteration:
            return None

    def _messages(self, half: str) -> list[Message]:
        """Return the messages of the open exchange, if it belongs to this half of the round."""
        if self._open is None or self._open.phase is None or half_of(self._open.phase) != half:
            return []
        return [message for _, message in self._open.messages]

    def _receive(self, half: str, messages: Iterable[Message]) -> None:
        """Give the replies of the open exchange to the round, which goes on to its next exchange."""
        if self._open is not None and self._messages(half):
            # the source of an error may be the SuperLink itself; only the message id is reliable
            found = {message.metadata.reply_to_message_id: message for message in messages}
            sent = {agent: message.metadata.message_id for agent, message in self._open.messages}
            with single_thread():
                self._open = self._next({agent: found.get(number) for agent, number in sent.items()})

    def _last_round(self) -> int:
        """Return the number of the open round, or of the last one."""
        if self._rounds is None:
            return 0
        return self._rounds.run.open_round or len(self._rounds.run.recorder.rounds)

    def summary(self) -> None:
        """Log the algorithm and the options that differ from their defaults; the study holds them all."""
        defaults = self.algorithm.option_defaults()
        options = [
            f"{name}={value!r}"
            for name, value in self.algorithm.options().items()
            if name not in defaults or canonical_json(value) != canonical_json(defaults[name])
        ]
        text = f"{self._settings.label} with {', '.join(options) or 'its default options'}"
        log(INFO, "%s", printable(text))
