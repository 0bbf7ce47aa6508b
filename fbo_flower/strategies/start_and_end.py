"""How a study starts and ends.

At the start the agents register, or the journal of an interrupted study is replayed. At the end the agents
are told, the results are logged, and a study without results is an error.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from logging import INFO, WARNING
from secrets import token_hex
from typing import Any, cast

from flwr.common.logger import log
from flwr.serverapp import Grid

from fbo_flower.algorithms import Algorithm, make_algorithm
from fbo_flower.algorithms.aims import NUMBER
from fbo_flower.algorithms.records import AnyArray, Federation, ServerResults
from fbo_flower.algorithms.registry import check_aims
from fbo_flower.errors import ConfigError, FBOError, JournalError, number_text, printable
from fbo_flower.numerics.seeding import fresh_entropy
from fbo_flower.numerics.threads import single_thread
from fbo_flower.space.space import SearchSpace
from fbo_flower.storage import Event, StudyJournal
from fbo_flower.storage.study_journal import StudyJournalReader
from fbo_flower.storage.warm_start import WarmStart
from fbo_flower.strategies.exchange import Clocked, Stopped, drive
from fbo_flower.strategies.node_report import Registration
from fbo_flower.strategies.recorder import MAX_REASON, Recorder, failures_text
from fbo_flower.strategies.registration import Agent, AgentRegistry
from fbo_flower.strategies.rounds import Rounds
from fbo_flower.strategies.settings import ASYNC, StrategySettings
from fbo_flower.strategies.study_run import StudyRun, server_of
from fbo_flower.study.study import Study


def federation_to_event(study: str, federation: Federation, arrays: Mapping[str, AnyArray]) -> Event:
    """Return the journal's first event: space and agents at the start, and the arrays of a warm start."""
    values = {
        "study": study,
        "space": federation.space.to_json(),
        "agents": list(federation.agents),
        "roles": dict(federation.roles),
        "outputs": list(federation.outputs),
    }
    return Event("federation", arrays=arrays, values=values)


def federation_from_event(event: Event) -> tuple[str, Federation]:
    """Undo `federation_to_event`: return the study's id and its federation."""
    values = event.values
    space = SearchSpace.from_json(str(values["space"]))
    agents, outputs = (tuple(cast(list[str], values[name])) for name in ("agents", "outputs"))
    roles = {str(k): str(v) for k, v in cast(dict[str, object], values["roles"]).items()}
    return str(values["study"]), Federation(space, agents, roles, outputs)


@contextmanager
def replaying() -> Iterator[None]:
    """Turn errors in repeating the events of a journal into a JournalError."""
    try:
        yield
    except JournalError:
        raise
    except (FBOError, LookupError, TypeError, ValueError, AttributeError) as error:
        raise JournalError(
            f"resume: expected events that can be repeated, got {type(error).__name__}: {error}; the journal "
            "was written by another version, or is damaged: resume with that version, restore a copy of the "
            "journal, or start a new study"
        ) from error


def begin_study(
    grid: Grid,
    algorithm: Algorithm[Any],
    settings: StrategySettings,
    seed: int | None,
    *,
    stop: threading.Event,
    journal: StudyJournal | None = None,
    resume: bool = False,
    warm_start: WarmStart | None = None,
    num_rounds: int | None = None,
) -> Rounds:
    """Return the rounds that are left of a study, with all its agents registered.

    Parameters
    ----------
    seed : None: that of the journal, or of a new study a random one
    stop : ends the wait for agents when it is set
    journal, resume : to be written; whether it may hold a study, whose steps are repeated
    warm_start : messages of an earlier study; None: start without
    num_rounds : as requested; None: no number

    Raises
    ------
    ConfigError
        If the journal holds a study that is not to be resumed, too few agents connect, they have different
        search spaces, or the algorithm or the warm start does not fit the search space.
    JournalError
        If the journal holds other settings, or this version of the algorithm makes other tasks.
    """
    events = [] if journal is None else journal.begun(resume)
    recorded = None if journal is None else journal.settings
    if seed is None:
        seed = fresh_entropy() if recorded is None else int(str(recorded["seed"]))
    if journal is not None:
        journal.begin(settings.fixed(algorithm, seed, warm_start), {"num_rounds": num_rounds})
    registry = AgentRegistry(
        settings.space,
        message_suffix="" if settings.action is None else f".{settings.action}",
        needs_keys=algorithm.secure_sums > 0,
        needs_all_parameters=algorithm.needs_all_parameters,
    )

    def register() -> None:
        drive(grid, registry.wait_for_agents(grid, settings.num_agents, settings.wait_seconds, stop), stop)

    if events:
        with replaying():
            study, federation = federation_from_event(events[0])
        registry.space = federation.space
    else:
        register()
        assert registry.space is not None
        algorithm.check(registry.space)
        check_aims(algorithm, registry.aims or NUMBER)
        # not derived from the seed: two studies with the same seed must have different ids
        study = token_hex(8)
        outputs = registry.shared_outputs()
        if not outputs and (registry.aims or NUMBER).has_outputs and "shared_outputs" in algorithm.options():
            log(WARNING, "Operators keep all outputs to themselves: each agent tunes alone")
        federation = Federation(registry.space, tuple(registry.nodes), registry.roles(), outputs)
    number, least = len(registry.nodes) or len(federation.agents), algorithm.secure_sums
    if 1 < number < least:
        log(
            WARNING,
            "secure_sums = %d, but %d agents take part: no sum can be made, so they exchange nothing, and "
            "with fed-ei each tunes alone. Add agents, or set secure_sums = %d if all agree to read each "
            "other's part of a sum, or 0 if the server may read the parts, too", least, number, number,
        )  # fmt: skip
    run = _make_run(algorithm, settings, seed, study, federation, registry, warm_start)
    run.journal = journal
    if isinstance(grid, Clocked):
        run.clocked, run.recorder.clock = True, grid.now
    if events:
        with replaying():
            run.replay(events[1:])
        register()
        if isinstance(grid, Clocked) and run.before:
            grid.restore(run.now, run.before)  # where it was when the run was interrupted
        log(INFO, "Resumed after round %d", len(run.recorder.rounds))
    elif journal is not None:
        arrays = {} if warm_start is None else warm_start.arrays
        journal.write([federation_to_event(study, federation, arrays)])
    run.num_rounds = num_rounds  # which may be larger than in the journal
    run.note_agents()
    return Rounds(run, grid, stop)


def _make_run(
    algorithm: Algorithm[Any],
    settings: StrategySettings,
    seed: int,
    study: str,
    federation: Federation,
    registry: AgentRegistry,
    warm_start: WarmStart | None,
) -> StudyRun:
    """Return the run before its first round."""
    algorithm = algorithm.for_outputs(federation.outputs)
    registry.targets = algorithm.targets
    server = server_of(algorithm, federation, seed)
    if warm_start is not None:
        warm_start.check_space(federation.space.digest)
        try:
            server.state = algorithm.warm_start(server.state, warm_start.arrays)
        except ConfigError as error:
            if warm_start.space:  # a file; arrays hold none
                raise
            raise ConfigError(
                f"initial_arrays: expected the arrays of an earlier result of {algorithm.name}, got others "
                f"({error}); leave them out to start from nothing"
            ) from error
    recorder = Recorder(settings.label, federation.space)
    return StudyRun(server, settings, seed, study, registry, recorder)


_REPEATED = ("label", "fraction", "mode", "max_staleness", "pool_curves")  # settings that a replay needs


def study_settings(run: StudyRun, status: str, seconds: float = 0.0) -> dict[str, Any]:
    """Return what `study.json` says about a run.

    Parameters
    ----------
    status : "finished", "interrupted" or "failed"
    seconds : duration of this process's part of the run
    """
    algorithm, recorder, settings = run.algorithm, run.recorder, run.settings
    registry = run.registry
    fixed = {name: list(one.fixed) for name, one in registry.registrations.items() if one.fixed}
    targets = algorithm.targets
    disclosures = dict(sorted(registry.disclosures().items()))
    found = (run.results() or ServerResults()).found
    return {
        "algorithm": algorithm.name,
        "label": settings.label,
        "options": algorithm.options(),
        "num_agents": len(registry.nodes),
        "num_rounds": run.num_rounds or len(recorder.rounds),
        **({"num_trials": registry.num_trials} if registry.num_trials else {}),
        "num_initial": algorithm.num_initial,
        "target_agents": None if targets == "all" else list(targets),
        "fraction": settings.fraction,
        **({"mode": ASYNC} if run.asynchronous else {}),
        **({} if run.pool is None else {"pool_curves": True}),
        **({"fixed": fixed} if fixed else {}),
        **({} if settings.max_staleness is None else {"max_staleness": settings.max_staleness}),
        "seed": run.seed,
        "study": run.study,
        "space": recorder.space.to_json(),
        **recorder.aims.settings(),
        **({"evaluations": dict(recorder.evaluations)} if recorder.evaluations else {}),
        **({"disclosures": disclosures} if disclosures else {}),
        "num_with_value": len(recorder.incumbents) if recorder.disclosed else None,
        "status": status,
        "seconds": run.seconds_before + seconds,
        **({"found": found} if found else {}),
    }


class JournalReplay:
    """The run in a server's journal up to its last commit; the server may write it meanwhile.

    Parameters
    ----------
    path : of the journal
    check : whether the whole file is checked at the first look

    Attributes
    ----------
    run : what the steps of the journal lead to; None: its agents have not registered
    has_ended : whether the study is finished
    """

    def __init__(self, path: str | os.PathLike[str], *, check: bool = False) -> None:
        self._reader = StudyJournalReader(path, check=check)
        self.run: StudyRun | None = None
        self.has_ended = False

    def look(self) -> None:
        """Repeat the steps that were committed since the last look.

        Raises
        ------
        JournalError
            If the file is damaged, or was written by a version of the algorithm that made other tasks.
        ConfigError
            If the algorithm is not installed here.
        """
        recorded = self._reader.settings()
        for event in self._reader.new_events():
            if self.run is None:
                options = dict(recorded["options"])
                algorithm = make_algorithm(str(recorded["algorithm"]), options)
            with single_thread(), replaying():
                if self.run is None:
                    study, federation = federation_from_event(event)
                    agents = {name: Agent(Registration(agent=name)) for name in federation.agents}
                    known = {name: recorded[name] for name in _REPEATED if name in recorded}
                    is_warm, digest = "warm_start" in recorded, federation.space.digest
                    self.run = _make_run(
                        algorithm, StrategySettings(**known), int(recorded["seed"]), study, federation,
                        AgentRegistry(federation.space, agents),
                        WarmStart(algorithm.name, digest, event.arrays) if is_warm else None,
                    )  # fmt: skip
                else:
                    self.run.clocked = self.run.clocked or "time" in event.values
                    self.run.replay([event])
            self.has_ended = event.kind == "end"


def study_of_journal(path: str | os.PathLike[str]) -> Study:
    """Return the study in a server's journal up to its last commit; the server may run meanwhile.

    Raises
    ------
    JournalError, ConfigError
        As `JournalReplay.look`, or if the file holds no study yet.
    """
    replay = JournalReplay(path, check=True)
    replay.look()
    run = replay.run
    if run is None:
        raise JournalError(
            f"journal: expected a study in {path}, got none yet; wait until its agents registered"
        )
    run.registry.nodes = dict.fromkeys(run.registry.agents, 0)  # who is connected is not known here
    status = "finished" if replay.has_ended else "interrupted"
    return run.recorder.study(study_settings(run, status), run.results())


def end_study(rounds: Rounds) -> None:
    """Tell the agents that the study has ended, and log its results.

    Raises
    ------
    ObjectiveError
        If every evaluation failed, or not one valid reply came.
    """
    run, grid = rounds.run, rounds.grid
    try:
        told = run.registry.tell_end(run.study, grid.get_node_ids(), run.settings.round_timeout)
        drive(grid, told, rounds.stop)
    except Stopped:
        raise
    except Exception:  # the study is complete; the agents' answers are in their journals
        log(WARNING, "The agents could not be told that the study has ended", exc_info=True)
    results = run.results() or ServerResults()
    if not run.recorder.reason:  # sites that exchange models send the reason beside their report
        reasons = [printable(str(row["failure"])) for row in results.models if row.get("failure")]
        run.recorder.reason = "".join(reasons[:1])[:MAX_REASON]
    for line in result_lines(run, results):
        log(INFO, "%s", line)
    run.recorder.check_results()


def result_lines(run: StudyRun, results: ServerResults) -> list[str]:
    """Return what the server knows at the end of a study, as lines of its log."""
    recorder, totals = run.recorder, run.recorder.totals
    down, up = (sum(int(row[name]) for row in recorder.rounds) for name in ("bytes_down", "bytes_up"))
    lines = [
        f"Study {run.study} has ended: {len(recorder.rounds)} rounds, {totals['replies']} replies, "
        f"{totals['failures']} lost, {totals['refused']} refused, {down:,} bytes down, {up:,} bytes up"
        + failures_text(totals["failed_trials"], totals["evaluations"], recorder.reason)
    ]
    if recorder.incumbents:
        agent, best, _ = recorder.best()
        lines.append(
            f"Best value {number_text(best)}, of agent {agent}; "
            f"{len(recorder.incumbents)} of {len(run.registry.nodes)} agents disclosed a value"
        )
    if totals["replies"] and not recorder.disclosed and not run.algorithm.roles:
        counts = sorted(run.registry.disclosures().items())
        chosen = "; ".join(f"{what}: {n} agent{'' if n == 1 else 's'}" for what, n in counts)
        lines.append(
            f"Values not disclosed{f' ({chosen})' if chosen else ''}. Each agent has its own best "
            "configuration: its log shows it, and `fbo-flower best JOURNAL` on its device"
        )
    if results.recommendations:
        lines.append(f"The server recommends a configuration to {len(results.recommendations)} agents")
    return lines
