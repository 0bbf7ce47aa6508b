"""How a study starts: register the agents, or replay the journal of a study that was interrupted."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from logging import INFO
from secrets import token_hex
from typing import Any

from flwr.common.logger import log
from flwr.serverapp import Grid

from fbo_flower.algorithms import Algorithm
from fbo_flower.algorithms.records import AnyArray, Federation
from fbo_flower.errors import FBOError, JournalError
from fbo_flower.numerics.seeding import generator
from fbo_flower.storage import Event, StudyJournal
from fbo_flower.storage.warm_start import WarmStart
from fbo_flower.strategies.clocked import Clocked
from fbo_flower.strategies.curve_pool import CurvePool
from fbo_flower.strategies.federation_event import federation_from_event, federation_to_event
from fbo_flower.strategies.recorder import Recorder
from fbo_flower.strategies.registration import AgentRegistry
from fbo_flower.strategies.settings import StrategySettings
from fbo_flower.strategies.study_run import StudyRun


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


@dataclass(frozen=True)
class StudyStart:
    """Starts or resumes one study.

    Parameters
    ----------
    algorithm, settings : of the strategy
    warm_start : messages of an earlier study; None: start without
    stop : ends the wait for agents when it is set
    asynchronous : whether agents do not wait for each other
    max_staleness : see `StudyRun`
    """

    algorithm: Algorithm[Any]
    settings: StrategySettings
    warm_start: WarmStart | None
    stop: threading.Event
    asynchronous: bool = False
    max_staleness: int | None = None

    def start(self, grid: Grid, seed: int, journal: StudyJournal | None, events: list[Event]) -> StudyRun:
        """Return a run that is ready for its next round, with all agents registered.

        Parameters
        ----------
        events : of the journal; empty for a new study

        Raises
        ------
        ConfigError
            If too few agents connect, they have different search spaces, or the algorithm or the warm start
            does not fit the search space.
        JournalError
            If this version of the algorithm makes other tasks than the journal holds.
        """
        needs_keys = self.algorithm.sums_securely
        registry = AgentRegistry(
            self.settings.space,
            self.settings.message_suffix,
            needs_keys,
            self.algorithm.inner.needs_all_parameters,
        )
        if events:
            with replaying():
                study, federation = federation_from_event(events[0])
            registry.space = federation.space
        else:
            self._register(registry, grid)
            assert registry.space is not None
            self.algorithm.check(registry.space)
            # not derived from the seed: two studies with the same seed must have different ids
            study = token_hex(8)
            federation = Federation(registry.space, tuple(registry.nodes), registry.roles)
        state = self.algorithm.init(federation, generator(seed, "server", "init"))
        if self.warm_start is not None:
            self.warm_start.check_space(federation.space.digest)
            state = self._warm_started(state, self.warm_start.arrays)
        clock = grid.now if isinstance(grid, Clocked) else time.perf_counter
        recorder = Recorder(self.settings.label, federation.space, self.settings.minimize, clock)
        seeded = self.settings.seed is not None
        run = StudyRun(
            self.algorithm, seed, study, registry, recorder, state, journal, seeded,
            clocked=isinstance(grid, Clocked), asynchronous=self.asynchronous,
            max_staleness=self.max_staleness, pool=CurvePool() if self.settings.pool_curves else None,
        )  # fmt: skip
        if events:
            with replaying():
                run.replay(events[1:])
            run.seconds_before = sum(row["seconds"] for row in recorder.rounds)
            self._register(registry, grid)
            log(INFO, "Resumed after round %d", len(recorder.rounds))
        elif journal is not None:
            journal.write([federation_to_event(study, federation)])
        run.note_minimize(bool(registry.minimize))
        run.write_agents()
        return run

    def _register(self, registry: AgentRegistry, grid: Grid) -> None:
        registry.wait_for_agents(grid, self.settings.num_agents, self.settings.wait_seconds, self.stop)

    def _warm_started(self, state: Any, messages: Mapping[str, AnyArray]) -> Any:
        """Return the server's initial state with the messages of an earlier study added to it."""
        core = self.algorithm.inner
        inner = core.warm_start(self.algorithm.inner_state(state), messages)
        return self.algorithm.with_inner_state(state, inner)
