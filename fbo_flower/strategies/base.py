"""`TuningStrategy`: an algorithm as a Flower strategy. The algorithm thinks, this class carries messages.

It takes the roll, sends each agent its task, refuses what is malformed, and tells the algorithm who
answered. An agent that fails, lies in form, stays silent or comes late costs its own contribution.
"""

from __future__ import annotations

import inspect
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from logging import INFO
from pathlib import Path
from secrets import token_hex
from typing import Any, ClassVar

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.common.logger import log
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from fbo_flower.algorithms import Algorithm, with_secure_sums
from fbo_flower.algorithms.capabilities import (
    DescribesProgress,
    ExchangesModels,
    HasInitialDesign,
    HasTargets,
    ReportsResults,
    SecureRounds,
    ServerResults,
    WarmStartable,
    unwrapped,
    unwrapped_state,
)
from fbo_flower.algorithms.options import check_number
from fbo_flower.algorithms.protocol import DEFAULT_ROUNDS
from fbo_flower.algorithms.records import AnyArray, Federation, Phase
from fbo_flower.errors import ConfigError
from fbo_flower.numerics.seeding import fresh_entropy, generator
from fbo_flower.numerics.threads import single_thread
from fbo_flower.space.space import SearchSpace
from fbo_flower.storage import StudyJournal
from fbo_flower.storage.warm_start import WarmStart
from fbo_flower.strategies.recorder import Recorder, RoundProgress
from fbo_flower.strategies.registration import AgentRegistry
from fbo_flower.strategies.replies import NO_REPLY, read_reply
from fbo_flower.strategies.send_and_receive import Stopped, send_and_receive
from fbo_flower.strategies.study_run import StudyRun, first_event, from_first_event
from fbo_flower.study.study import Study


class TuningStrategy(Strategy):
    """Base class of all strategies here; subclasses name their algorithm.

    Parameters
    ----------
    num_agents : agents to wait for before the first round; None: those that are connected once their
        number is steady
    seed : of the server's draws; None: fresh entropy
    fraction : share of the connected agents that get a task in a round, drawn anew each round
    wait_seconds : deadline of the roll-call
    round_timeout : deadline of a half-round; later replies are dropped
    quorum : share of the tasks after whose replies a half-round closes
    space : the search space to insist on; None: what the agents agree on
    action : routes messages to `@app.train(action)` and `@app.query(action)`; None: the plain ones
    label : name of this run in tables and pictures; None: the algorithm's
    on_round : called after every round
    options : the algorithm's own, by name

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
        on_round: Callable[[RoundProgress], None] | None = None,
        **options: object,
    ) -> None:
        if num_agents is not None:
            check_number("num_agents", num_agents, 1, integer=True)
        if seed is not None:
            check_number("seed", seed, 0, integer=True)
        check_number("fraction", fraction, 1e-9, 1.0)
        check_number("quorum", quorum, 1e-9, 1.0)
        check_number("wait_seconds", wait_seconds, 0.0)
        check_number("round_timeout", round_timeout, 0.0)
        self.algorithm = with_secure_sums(self.algorithm_class.from_options(options))
        self._num_agents = num_agents
        self._seed = seed
        self._fraction = fraction
        self._wait_seconds = wait_seconds
        self._round_timeout = round_timeout
        self._quorum = quorum
        self._space = space
        self._suffix = f".{action}" if action else ""
        self._label = label or self.algorithm.name
        self._on_round = on_round
        self._stop = threading.Event()
        self._run: StudyRun | None = None
        self._warm: WarmStart | None = None
        self.study: Study | None = None  # of the run so far, also after an interruption

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Show the algorithm's options in `help()` and in editors that look at the live object."""
        super().__init_subclass__(**kwargs)
        if "algorithm_class" in cls.__dict__:
            own = inspect.signature(TuningStrategy.__init__).parameters
            kept = [
                p for p in own.values() if p.kind is not inspect.Parameter.VAR_KEYWORD and p.name != "self"
            ]
            extra = [
                inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default)
                for name, default in cls.algorithm_class.option_defaults().items()
            ]
            cls.__signature__ = inspect.Signature([*kept, *extra])  # type: ignore[attr-defined]  # read by inspect

    # -- the run -------------------------------------------------------------------------------

    def start(  # type: ignore[override]  # a tuning run has no model to start from and returns a study
        self,
        grid: Grid,
        num_rounds: int | None = None,
        *,
        journal: str | os.PathLike[str] | None = None,
        resume: bool = False,
        warm_start: str | os.PathLike[str] | None = None,
    ) -> Study:
        """Run the algorithm over the grid and return what was disclosed and measured.

        Parameters
        ----------
        grid : Flower's, in a ServerApp's main function
        num_rounds : at least 1; None: until the algorithm is finished, `DEFAULT_ROUNDS` for those that
            never are
        journal : file that keeps every task and reply, so that a run that dies can be resumed
        resume : go on where the study in `journal` was cut off, in a new Flower run and with new node ids;
            an empty journal begins a study. `num_rounds` may be larger than before
        warm_start : a file of `export_messages` of an earlier study, or the directory of one

        Raises
        ------
        ConfigError
            If `num_rounds` is not positive, too few agents came, or they disagree on the search space.
        JournalError
            If the journal is in use, or of a study with other settings; the differences are listed.
        """
        if num_rounds is not None:
            check_number("num_rounds", num_rounds, 1, integer=True)
        elif not self.algorithm.finishes:
            num_rounds = DEFAULT_ROUNDS
        if resume and journal is None:
            raise ConfigError("resume: expected a journal to resume from, got none")
        started, status = time.perf_counter(), "failed"
        self._run = self.study = None
        self._warm = None if warm_start is None else WarmStart.load(Path(warm_start), self.algorithm.name)
        with ExitStack() as stack:
            book = None if journal is None else stack.enter_context(StudyJournal(journal))
            try:
                with single_thread():
                    self._run = self._begin(grid, book, resume)
                    self.summary()
                    self._rounds(grid, num_rounds)
                status = "finished"
            except (KeyboardInterrupt, Stopped):
                status = "interrupted"
                raise
            finally:
                self._stop.clear()  # heard; it does not stop the next run
                if self._run is not None:
                    settings = self._settings(num_rounds, status, time.perf_counter() - started)
                    results = self._results()
                    self.study = self._run.recorder.study(settings, results)
        return self.study

    def export_messages(self) -> WarmStart | None:
        """Return what another study may start from, after a run or an interruption; None: nothing."""
        core = unwrapped(self.algorithm)
        if self._run is None or not isinstance(core, WarmStartable):
            return None
        arrays = core.export_messages(unwrapped_state(self.algorithm, self._run.state))
        if not arrays:
            return None
        return WarmStart(self.algorithm.name, self._run.recorder.space.digest, arrays)

    def stop(self) -> None:
        """Make a running `start` end at its next look for replies, from another thread."""
        self._stop.set()

    def _begin(self, grid: Grid, journal: StudyJournal | None, resume: bool) -> StudyRun:
        events = [] if journal is None else list(journal.events())
        if events and not resume:
            raise ConfigError(f"journal: expected a new file, or resume=True to go on, got {journal!r}")
        if journal is not None:
            begun = journal.settings
            if self._seed is None and begun is not None:
                self._seed = int(str(begun["seed"]))
            journal.begin(self._identity(begun or {}))
        needs_keys = isinstance(self.algorithm, SecureRounds)
        registry = AgentRegistry(self._space, self._suffix, needs_keys)
        if events:
            study, federation = from_first_event(events[0])
            registry.space = federation.space
        else:
            registry.wait_for_agents(grid, self._num_agents, self._wait_seconds, self._stop)
            assert registry.space is not None
            self.algorithm.check(registry.space)
            # an id that repeats with the seed would let two studies be taken for one
            study = token_hex(8)
            federation = Federation(registry.space, tuple(registry.nodes), registry.roles)
        seed = self._seed_now()
        state = self.algorithm.init(federation, generator(seed, "server", "init"))
        if self._warm is not None:
            self._warm.check_space(federation.space.digest)
            state = self._warm_started(state, self._warm.arrays)
        recorder = Recorder(self._label, federation.space)
        run = StudyRun(self.algorithm, seed, study, registry, recorder, state, journal)
        if events:
            run.replay(events[1:])
            run.seconds_before = sum(row["seconds"] for row in recorder.rounds)
            registry.wait_for_agents(grid, self._num_agents, self._wait_seconds, self._stop)
            log(INFO, "Resumed after round %d", len(recorder.rounds))
        elif journal is not None:
            journal.write([first_event(study, federation)])
        run.write_agents()
        return run

    def _warm_started(self, state: Any, messages: Mapping[str, AnyArray]) -> Any:
        """Return the server's first state with the messages of an earlier study in it."""
        core = unwrapped(self.algorithm)
        if not isinstance(core, WarmStartable):
            raise ConfigError(
                f"warm_start: expected an algorithm that keeps messages, got {self.algorithm.name}"
            )
        inner = core.warm_start(unwrapped_state(self.algorithm, state), messages)
        if isinstance(self.algorithm, SecureRounds):
            return self.algorithm.with_inner_state(state, inner)
        return inner

    def _results(self) -> ServerResults | None:
        run = self._current()
        return run.algorithm.results(run.state) if isinstance(run.algorithm, ReportsResults) else None

    def _rounds(self, grid: Grid, num_rounds: int | None) -> None:
        """Do what is left of the study."""
        run, last_work = self._current(), time.monotonic()
        server_round = len(run.recorder.rounds)
        finishing = run.reopened is not None and run.reopened[0] is Phase.FINISH
        ended = finishing or any(asked for (phase, _), asked in run.past.items() if phase is Phase.FINISH)
        while run.open_round or not (
            ended or server_round == num_rounds or self.algorithm.finished(run.state)
        ):
            server_round += 1
            progress = self._round(grid, server_round, num_rounds)
            if self._on_round is not None:
                self._on_round(progress)
            last_work = self._wait_for_work(last_work) if num_rounds is None else last_work
        self._finish(grid, server_round)

    def _round(self, grid: Grid, server_round: int, num_rounds: int | None) -> RoundProgress:
        run = self._current()
        run.begin_round(server_round)
        known = dict(run.registry.incarnations)
        run.registry.register_late(
            grid, sorted(grid.get_node_ids()), self._stop, min(30.0, self._round_timeout)
        )
        if run.registry.incarnations != known:
            run.write_agents()
        for phase in self.algorithm.phases:
            self._half_round(grid, phase, server_round)
        progress = run.end_round(server_round, num_rounds)
        log(
            INFO, "[round %d/%s] best %.4f, mean %.4f, %d replies, %d failures, %d refused",
            server_round, num_rounds or "?", progress.best, progress.mean,
            progress.replies, progress.failures, progress.refused,
        )  # fmt: skip
        return progress

    def _wait_for_work(self, last_work: float) -> float:
        """Pause while nobody is there to do what is left; give up after the timeout of a round."""
        if self._current().busy:
            return time.monotonic()
        if time.monotonic() - last_work > self._round_timeout:
            raise ConfigError(
                f"agents: expected those with budget left within {self._round_timeout:g} s, none came back"
            )
        self._stop.wait(min(1.0, self._round_timeout))
        return last_work

    def _finish(self, grid: Grid, server_round: int) -> None:
        """Hold the last exchanges, until the algorithm asks for no more; each has a round of its own."""
        most = self.algorithm.max_final_exchanges if isinstance(self.algorithm, ExchangesModels) else 1
        for number in range(1, most + 1):
            if not self._half_round(grid, Phase.FINISH, server_round + number):
                return

    def _half_round(self, grid: Grid, phase: Phase, server_round: int) -> bool:
        """Ask and tell; return whether anything was asked. One that is past is left alone."""
        run = self._current()
        if (phase, server_round) in run.past:
            return run.past[phase, server_round]
        if run.reopened != (phase, server_round):
            run.ask(phase, server_round, self._cohort(grid, server_round))
        if not run.sent:
            return False
        messages = run.messages(phase, server_round, self._suffix)
        quorum = int(np.ceil(self._quorum * len(run.sent))) - len(run.known)
        agents = list(messages)

        def hear(replies: Mapping[int, Message]) -> None:
            run.hear(phase, server_round, {agents[i]: read_reply(reply) for i, reply in replies.items()})

        send_and_receive(grid, list(messages.values()), self._round_timeout, self._stop, max(quorum, 0), hear)
        self._tell(phase, server_round)
        return True

    def _cohort(self, grid: Grid, server_round: int) -> list[str]:
        """Return who is asked: all that are there, or a share of them drawn anew each round."""
        present = self._current().registry.present(grid.get_node_ids())
        if self._fraction < 1.0 and present:
            rng = generator(self._seed_now(), "server", "cohort", server_round)
            size = max(1, round(self._fraction * len(present)))
            present = [present[i] for i in np.sort(rng.choice(len(present), size, replace=False))]
        return present

    def _tell(self, phase: Phase, server_round: int) -> None:
        run = self._current()
        core, before = unwrapped(self.algorithm), unwrapped_state(self.algorithm, run.state)
        failed = [agent for agent, a in run.known.items() if a.packed is None and not a.refused]
        run.tell(phase, server_round, NO_REPLY)
        if isinstance(core, DescribesProgress):
            for line in core.progress_lines(unwrapped_state(self.algorithm, run.state), before):
                log(INFO, "%s", line)
        for agent in failed:
            run.registry.mark_suspect(agent)

    # -- Flower's interface --------------------------------------------------------------------

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return this round's tasks; `arrays` and `config` are not used."""
        return self._configure(Phase.TRAIN, server_round, grid)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Tell the algorithm what came back; there is no model to return."""
        self._aggregate(Phase.TRAIN, server_round, replies)
        return None, None

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return this round's tasks of the second half-round."""
        return self._configure(Phase.EVALUATE, server_round, grid)

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Tell the algorithm what came back."""
        self._aggregate(Phase.EVALUATE, server_round, replies)
        return None

    def _configure(self, phase: Phase, server_round: int, grid: Grid) -> list[Message]:
        run = self._current()
        run.ask(phase, server_round, self._cohort(grid, server_round))
        return list(run.messages(phase, server_round, self._suffix).values())

    def _aggregate(self, phase: Phase, server_round: int, replies: Iterable[Message]) -> None:
        run = self._current()
        agents = {run.registry.nodes[sent.agent]: sent.agent for sent in run.sent}
        found = {r.metadata.src_node_id: r for r in replies}
        answers = {agents[node]: read_reply(reply) for node, reply in found.items() if node in agents}
        run.hear(phase, server_round, answers)
        self._tell(phase, server_round)

    def summary(self) -> None:
        """Log what is about to run."""
        options = ", ".join(f"{name}={value!r}" for name, value in self.algorithm.options().items())
        log(INFO, "%s: %s", self._label, options)

    def _current(self) -> StudyRun:
        if self._run is None:
            raise ConfigError(f"{type(self).__name__}: expected start(grid, num_rounds=...) to be running")
        return self._run

    def _seed_now(self) -> int:
        """Return the seed of the study; fresh entropy where none was given, kept for the rest of it."""
        if self._seed is None:
            self._seed = fresh_entropy()
        return self._seed

    def _identity(self, begun: Mapping[str, object]) -> dict[str, object]:
        """Return the settings that a resumed study must share with its beginning.

        An option that it began without, because there was none yet, is what it is by default.
        """
        options, defaults = self.algorithm.options(), self.algorithm_class.option_defaults()
        known = begun.get("options", options)
        new = [name for name in options if isinstance(known, dict) and name not in known]
        later = {name for name in new if options[name] == defaults[name]}
        return {
            "algorithm": self.algorithm.name,
            "options": {name: value for name, value in options.items() if name not in later},
            "seed": str(self._seed_now()),
            "fraction": self._fraction,
            "label": self._label,
            **({} if self._warm is None else {"warm_start": self._warm.digest}),
        }

    def _settings(self, num_rounds: int | None, status: str, seconds: float) -> dict[str, Any]:
        run = self._current()
        core = unwrapped(self.algorithm)
        targets = core.targets if isinstance(core, HasTargets) else "all"
        found = {}
        if isinstance(core, DescribesProgress):
            found = {"found": core.description(unwrapped_state(self.algorithm, run.state))}
        return {
            "algorithm": self.algorithm.name,
            "label": self._label,
            "options": self.algorithm.options(),
            "num_agents": len(run.registry.nodes),
            "num_rounds": num_rounds or len(run.recorder.rounds),
            "num_initial": core.num_initial if isinstance(core, HasInitialDesign) else 0,
            "target_agents": None if targets == "all" else list(targets),
            "fraction": self._fraction,
            "seed": self._seed_now(),
            "study": run.study,
            "space": run.recorder.space.to_json(),
            **({"evaluations": dict(run.recorder.evaluations)} if run.recorder.evaluations else {}),
            "status": status,
            "seconds": run.seconds_before + seconds,
            **found,
        }
