"""How a study starts and ends.

At the start the agents register, or the journal of an interrupted study is replayed. At the end the agents
are told, the results are logged, and a study without results is an error.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from logging import INFO, WARNING
from secrets import token_hex
from typing import Any, cast

from flwr.common.logger import log
from flwr.serverapp import Grid

from fbo_flower.algorithms import Algorithm, make_algorithm
from fbo_flower.algorithms.aims import NUMBER
from fbo_flower.algorithms.records import Federation, ServerResults
from fbo_flower.algorithms.registry import check_aims
from fbo_flower.errors import (
    ConfigError,
    FBOError,
    JournalError,
    number_text,
    printable,
)
from fbo_flower.space.space import SearchSpace
from fbo_flower.storage import Event, StudyJournal
from fbo_flower.storage.study_journal import StudyJournalReader
from fbo_flower.storage.warm_start import WarmStart
from fbo_flower.strategies.exchange import Clocked, Stopped, drive
from fbo_flower.strategies.recorder import MAX_REASON, Recorder, failures_text
from fbo_flower.strategies.registration import Agent, AgentRegistry, Registration
from fbo_flower.strategies.settings import ASYNC, StrategySettings
from fbo_flower.strategies.study_run import StudyRun, server_of
from fbo_flower.study.study import Study


def federation_to_event(study: str, federation: Federation) -> Event:
    """Return the journal's first event: the search space and the agents that registered at the start."""
    values = {
        "study": study,
        "space": federation.space.to_json(),
        "agents": list(federation.agents),
        "roles": dict(federation.roles),
        "outputs": list(federation.outputs),
    }
    return Event("roll", values=values)


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
    seed: int,
    *,
    stop: threading.Event,
    journal: StudyJournal | None = None,
    events: Sequence[Event] = (),
    warm_start: WarmStart | None = None,
) -> StudyRun:
    """Return a run that is ready for its next round, with all agents registered.

    Parameters
    ----------
    stop : ends the wait for agents when it is set
    events : of the journal; empty for a new study
    warm_start : messages of an earlier study; None: start without

    Raises
    ------
    ConfigError
        If too few agents connect, they have different search spaces, or the algorithm or the warm start does
        not fit the search space.
    JournalError
        If this version of the algorithm makes other tasks than the journal holds.
    """
    registry = AgentRegistry(
        settings.space,
        message_suffix=settings.message_suffix,
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
    clock = grid.now if isinstance(grid, Clocked) else time.perf_counter
    run = StudyRun(
        server, settings, seed, study, registry,
        Recorder(settings.label, federation.space, clock=clock), grid, stop, journal,
        clocked=isinstance(grid, Clocked),
    )  # fmt: skip
    if events:
        with replaying():
            run.replay(events[1:])
        run.seconds_before = sum(row["seconds"] for row in run.recorder.rounds)
        register()
        log(INFO, "Resumed after round %d", len(run.recorder.rounds))
    elif journal is not None:
        journal.write([federation_to_event(study, federation)])
    run.note_aims(registry.aims or NUMBER)
    run.write_agents()
    return run


_REPEATED = ("fraction", "mode", "max_staleness", "pool_curves")  # settings that a replay needs


def study_settings(run: StudyRun, status: str, seconds: float = 0.0) -> dict[str, Any]:
    """Return what `study.json` says about a run.

    Parameters
    ----------
    status : "finished", "interrupted" or "failed"
    seconds : duration of this process's part of the run
    """
    algorithm, recorder, settings = run.algorithm, run.recorder, run.settings
    registry, core = run.registry, algorithm
    fixed = {name: list(one.fixed) for name, one in registry.registrations.items() if one.fixed}
    targets = core.targets
    disclosures = dict(sorted(registry.disclosures().items()))
    found = core.description(run.server.state)
    return {
        "algorithm": algorithm.name,
        "label": settings.label,
        "options": algorithm.options(),
        "num_agents": len(registry.nodes),
        "num_rounds": run.num_rounds or len(recorder.rounds),
        **({"num_trials": registry.num_trials} if registry.num_trials else {}),
        "num_initial": core.num_initial,
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


def study_of_journal(path: str | os.PathLike[str]) -> Study:
    """Return the study in a server's journal up to its last commit; the server may run meanwhile.

    Raises
    ------
    JournalError
        If the file is not a server's journal, is damaged, holds no study yet, or was written by a version
        of the algorithm that made other tasks.
    ConfigError
        If the algorithm is not installed here.
    """
    reader = StudyJournalReader(path, check=True)
    recorded, events = reader.settings(), list(reader.new_events())
    if not recorded or not events:
        raise JournalError(
            f"journal: expected a study in {path}, got none yet; wait until its agents registered"
        )
    if "warm_start" in recorded:
        raise ConfigError(
            f"journal: {path} holds a study that began with messages of another one, which the journal does "
            "not hold; use the study that the server saves at its end"
        )
    algorithm = make_algorithm(str(recorded["algorithm"]), dict(recorded["options"]))
    with replaying():
        study, federation = federation_from_event(events[0])
        algorithm = algorithm.for_outputs(federation.outputs)
        registry = AgentRegistry(federation.space)
        registry.agents.update({name: Agent(Registration(agent=name)) for name in federation.agents})
        clock_times = any("time" in event.values for event in events)
        seed, label = int(recorded["seed"]), str(recorded["label"])
        settings = StrategySettings(
            label=label, **{name: recorded[name] for name in _REPEATED if name in recorded}
        )
        run = StudyRun(
            server_of(algorithm, federation, seed), settings, seed, study, registry,
            Recorder(label, federation.space, clock=lambda: 0.0), clocked=clock_times,
        )  # fmt: skip
        run.replay(events[1:])
    for agent in registry.agents.values():  # whether they are connected is not known here
        agent.node = 0
    run.seconds_before = sum(row["seconds"] for row in run.recorder.rounds)
    num_rounds = next((e.values["num_rounds"] for e in reversed(events) if "num_rounds" in e.values), None)
    status = "finished" if events[-1].kind == "end" else "interrupted"
    run.num_rounds = num_rounds if isinstance(num_rounds, int) else None
    return run.recorder.study(study_settings(run, status), run.results())


def end_study(run: StudyRun) -> None:
    """Tell the agents that the study has ended, and log its results.

    Raises
    ------
    ObjectiveError
        If every evaluation failed, or not one valid reply came.
    """
    grid, stop = run.grid, run.stop
    assert grid is not None, "it has run"
    try:
        connected = grid.get_node_ids()
        drive(grid, run.registry.tell_end(run.study, connected, run.settings.round_timeout), stop)
    except Stopped:
        raise
    except Exception:  # the study is complete; the agents' answers are in their journals
        log(WARNING, "The agents could not be told that the study has ended", exc_info=True)
    results = run.results() or ServerResults()
    if not run.recorder.reason:  # sites that exchange models send the reason beside their report
        reasons = [printable(str(row["failure"])) for row in results.models if row.get("failure")]
        run.recorder.count_evaluations(0, "".join(reasons[:1])[:MAX_REASON])
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
        top_of = min if recorder.aims.minimize else max
        best = top_of(recorder.incumbents, key=lambda agent: recorder.incumbents[agent])
        lines.append(
            f"Best value {number_text(recorder.incumbents[best])}, of agent {best}; "
            f"{len(recorder.incumbents)} of {len(run.registry.nodes)} agents disclosed a value"
        )
    if totals["replies"] and not recorder.disclosed and not run.algorithm.roles:
        chosen = tally_text(run.registry.disclosures())
        lines.append(
            f"Values not disclosed{chosen}. Each agent has its own best configuration: its log shows it, and "
            "`fbo-flower best JOURNAL` on its device"
        )
    if results.recommendations:
        lines.append(f"The server recommends a configuration to {len(results.recommendations)} agents")
    return lines


def tally_text(counts: Counter[str]) -> str:
    """Return how many agents disclose what, in brackets; "" if none said so.

    >>> tally_text(Counter({"none, default": 2, "none, operator": 1}))
    ' (none, default: 2 agents; none, operator: 1 agent)'
    """
    texts = [f"{what}: {n} agent{'' if n == 1 else 's'}" for what, n in sorted(counts.items())]
    return f" ({'; '.join(texts)})" if texts else ""
