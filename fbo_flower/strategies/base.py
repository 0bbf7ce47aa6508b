"""`TuningStrategy`: an algorithm as a Flower strategy. The algorithm thinks, this class carries messages.

It takes the roll, sends each agent its task, refuses what is malformed, and tells the algorithm who
answered. An agent that fails, lies in form, stays silent or comes late costs its own contribution.
"""

from __future__ import annotations

import inspect
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from logging import INFO, WARNING
from secrets import token_hex
from typing import Any, ClassVar

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord
from flwr.common.logger import log
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from fbo_flower import wire
from fbo_flower.algorithms import Algorithm
from fbo_flower.algorithms.protocol import canonical_json, check_number
from fbo_flower.algorithms.records import Federation, Phase, Report, Task, natural_key
from fbo_flower.errors import ConfigError, WireError
from fbo_flower.flower_records import count_bytes, from_records, to_records
from fbo_flower.numerics.seeding import fresh_entropy, generator
from fbo_flower.numerics.threads import single_thread
from fbo_flower.space import SearchSpace
from fbo_flower.strategies.exchange import Stopped, exchange
from fbo_flower.strategies.recorder import Recorder, RoundProgress
from fbo_flower.strategies.roll_call import Roster
from fbo_flower.study import Study

_MESSAGE_TYPES = {
    Phase.TRAIN: MessageType.TRAIN,
    Phase.EVALUATE: MessageType.EVALUATE,
    Phase.FINISH: MessageType.TRAIN,
}


@dataclass
class _Run:
    """One run of the strategy: all that changes."""

    study: str
    roster: Roster
    recorder: Recorder
    state: Any  # the algorithm's own
    stop: threading.Event
    sent: list[tuple[str, Task, wire.Envelope]] = field(default_factory=list)


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
        self.algorithm = self.algorithm_class.from_options(options)
        self._num_agents = num_agents
        self._seed = fresh_entropy() if seed is None else seed
        self._fraction = fraction
        self._wait_seconds = wait_seconds
        self._round_timeout = round_timeout
        self._quorum = quorum
        self._space = space
        self._suffix = f".{action}" if action else ""
        self._label = label or self.algorithm.name
        self._on_round = on_round
        self._stop = threading.Event()
        self._run: _Run | None = None
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
        self, grid: Grid, num_rounds: int | None = 25
    ) -> Study:
        """Run the algorithm over the grid and return what was disclosed and measured.

        Parameters
        ----------
        grid : Flower's, in a ServerApp's main function
        num_rounds : at least 1; None: until the algorithm is finished, for those that finish

        Raises
        ------
        ConfigError
            If `num_rounds` is not positive, too few agents came, or they disagree on the search space.
        """
        if num_rounds is not None:
            check_number("num_rounds", num_rounds, 1, integer=True)
        elif not self.algorithm.finishes:
            raise ConfigError(f"num_rounds: expected an integer >= 1, {self.algorithm.name} never finishes")
        started, status = time.perf_counter(), "failed"
        self._run = self.study = None
        try:
            with single_thread():
                self._run = self._begin(grid)
                self.summary()
                server_round, last_work = 0, time.monotonic()
                while server_round != num_rounds and not self.algorithm.finished(self._run.state):
                    server_round += 1
                    progress = self._round(grid, server_round, num_rounds)
                    if self._on_round is not None:
                        self._on_round(progress)
                    last_work = self._wait_for_work(last_work) if num_rounds is None else last_work
                self._half_round(grid, Phase.FINISH, server_round + 1)
            status = "finished"
        except (KeyboardInterrupt, Stopped):
            status = "interrupted"
            raise
        finally:
            self._stop.clear()  # heard; it does not stop the next run
            if self._run is not None:
                settings = self._settings(num_rounds, status, time.perf_counter() - started)
                self.study = self._run.recorder.study(settings)
        return self.study

    def stop(self) -> None:
        """Make a running `start` end at its next look for replies, from another thread."""
        self._stop.set()

    def _begin(self, grid: Grid) -> _Run:
        roster = Roster(self._space, self._suffix)
        roster.first_call(grid, self._num_agents, self._wait_seconds, self._stop)
        assert roster.space is not None
        self.algorithm.check(roster.space)
        federation = Federation(roster.space, tuple(roster.nodes), roster.roles)
        state = self.algorithm.init(federation, generator(self._seed, "server", "init"))
        # an id that repeats with the seed would let two studies be taken for one
        return _Run(token_hex(8), roster, Recorder(self._label, roster.space), state, self._stop)

    def _round(self, grid: Grid, server_round: int, num_rounds: int | None) -> RoundProgress:
        run = self._current()
        run.recorder.open_round()
        connected = sorted(grid.get_node_ids())
        run.roster.late_call(grid, connected, run.stop)
        for phase in self.algorithm.phases:
            self._half_round(grid, phase, server_round)
        progress = run.recorder.close_round(server_round, num_rounds)
        log(
            INFO, "[round %d/%s] best %.4f, mean %.4f, %d replies, %d failures, %d refused",
            server_round, num_rounds or "?", progress.best, progress.mean,
            progress.replies, progress.failures, progress.refused,
        )  # fmt: skip
        return progress

    def _wait_for_work(self, last_work: float) -> float:
        """Pause while nobody is there to do what is left; give up after the timeout of a round."""
        if self._current().sent:
            return time.monotonic()
        if time.monotonic() - last_work > self._round_timeout:
            raise ConfigError(
                f"agents: expected those with budget left within {self._round_timeout:g} s, none came back"
            )
        self._stop.wait(min(1.0, self._round_timeout))
        return last_work

    def _half_round(self, grid: Grid, phase: Phase, server_round: int) -> None:
        run = self._current()
        messages = self._configure(phase, server_round, grid)
        if not messages:
            return
        quorum = int(np.ceil(self._quorum * len(messages)))
        replies = exchange(grid, messages, self._round_timeout, run.stop, quorum)
        self._aggregate(phase, server_round, replies)

    # -- both halves of a half-round -----------------------------------------------------------

    def _configure(self, phase: Phase, server_round: int, grid: Grid) -> list[Message]:
        """Ask the algorithm for tasks and pack them."""
        run = self._current()
        present = run.roster.present(grid.get_node_ids())
        if self._fraction < 1.0 and present:
            rng = generator(self._seed, "server", "cohort", server_round)
            size = max(1, round(self._fraction * len(present)))
            present = [present[i] for i in np.sort(rng.choice(len(present), size, replace=False))]
        rng = generator(self._seed, "server", "ask", str(phase), server_round)
        run.state, tasks = self.algorithm.ask(run.state, phase, server_round, present, rng)
        options, digest = canonical_json(self.algorithm.options()), run.recorder.space.digest
        run.sent, messages = [], []
        for agent in sorted(tasks, key=natural_key):
            envelope = wire.Envelope(run.study, agent, digest, self.algorithm.name, options)
            content = to_records(wire.pack_task(tasks[agent], envelope))
            run.recorder.count(tasks=1, bytes_down=count_bytes(content))
            run.sent.append((agent, tasks[agent], envelope))
            kind = _MESSAGE_TYPES[phase] + self._suffix
            messages.append(Message(content, run.roster.nodes[agent], kind, group_id=str(server_round)))
        return messages

    def _aggregate(self, phase: Phase, server_round: int, replies: Mapping[int, Message]) -> None:
        """Check the replies and tell the algorithm."""
        run = self._current()
        reports: dict[str, Report] = {}
        for position, (agent, task, envelope) in enumerate(run.sent):
            reply = replies.get(position)
            report = self._read(agent, task, envelope, server_round, reply)
            if report is not None:
                reports[agent] = report
        run.state = self.algorithm.tell(run.state, phase, reports)

    def _read(
        self, agent: str, task: Task, envelope: wire.Envelope, server_round: int, reply: Message | None
    ) -> Report | None:
        """Return an agent's report; None, counted and logged once, if there is none to trust."""
        run = self._current()
        if reply is None or reply.has_error():
            reason = (
                "no reply in time" if reply is None else f"error {reply.error.code}: {reply.error.reason}"
            )
            log(WARNING, "Round %d, agent %s: %s", server_round, agent, reason)
            run.recorder.count(failures=1)
            return None
        try:
            run.recorder.count(bytes_up=count_bytes(reply.content))
            arrays, config = from_records(reply.content)
            schema = self.algorithm.report_schema(run.recorder.space)
            dimension = run.recorder.space.dimension
            report, disclosure = wire.unpack_report(arrays, config, task, envelope, schema, dimension)
        except WireError as error:
            log(WARNING, "Round %d, agent %s: refused: %s", server_round, agent, error)
            run.recorder.count(refused=1)
            return None
        run.recorder.count(replies=1, failed_trials=report.num_failed)
        run.recorder.disclose(agent, server_round, disclosure)
        return report

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
        self._aggregate(Phase.TRAIN, server_round, self._by_position(replies))
        return None, None

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return this round's tasks of the second half-round."""
        return self._configure(Phase.EVALUATE, server_round, grid)

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Tell the algorithm what came back."""
        self._aggregate(Phase.EVALUATE, server_round, self._by_position(replies))
        return None

    def summary(self) -> None:
        """Log what is about to run."""
        options = ", ".join(f"{name}={value!r}" for name, value in self.algorithm.options().items())
        log(INFO, "%s: %s", self._label, options)

    def _by_position(self, replies: Iterable[Message]) -> dict[int, Message]:
        run = self._current()
        positions = {run.roster.nodes[agent]: i for i, (agent, _, _) in enumerate(run.sent)}
        found = {r.metadata.src_node_id: r for r in replies}
        return {positions[node]: reply for node, reply in found.items() if node in positions}

    def _current(self) -> _Run:
        if self._run is None:
            raise ConfigError(f"{type(self).__name__}: expected start(grid, num_rounds=...) to be running")
        return self._run

    def _settings(self, num_rounds: int | None, status: str, seconds: float) -> dict[str, Any]:
        run = self._current()
        targets = getattr(self.algorithm, "targets", "all")
        return {
            "algorithm": self.algorithm.name,
            "label": self._label,
            "options": self.algorithm.options(),
            "num_agents": len(run.roster.nodes),
            "num_rounds": num_rounds or len(run.recorder.rounds),
            "num_initial": getattr(self.algorithm, "num_initial", 0),
            "target_agents": None if targets == "all" else list(targets),
            "fraction": self._fraction,
            "seed": self._seed,
            "study": run.study,
            "space": run.recorder.space.to_json(),
            "status": status,
            "seconds": seconds,
        }
