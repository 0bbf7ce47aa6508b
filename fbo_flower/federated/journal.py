"""What a tuner writes down, so that a killed server goes on with the round in which it was.

Three kinds of events, each written in one transaction with what belongs together:

- `places`: trials that got a place, new ones with their configuration, promoted ones with their new target;
- `step`: what one round of all running trials brought, with the digests of their checkpoints, which are on
  the disk before the event is. A round that was under way when the server died is done again as a whole;
- `judged`: what the re-evaluation of one finalist brought.

The proposals are written, not recomputed, so that a resumed tuner does not fit its surrogate again.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from fbo_flower.errors import ConfigError
from fbo_flower.federated.records import Trial, TrialRound
from fbo_flower.space.space import SearchSpace
from fbo_flower.storage import Event, StudyJournal

PLACES, STEP, JUDGED = "federation-places", "federation-step", "federation-judged"


class TunerJournal:
    """The journal of a tuner, or none.

    Parameters
    ----------
    path : file; None: nothing is written
    """

    def __init__(self, path: str | os.PathLike[str] | None) -> None:
        self._journal = None if path is None else StudyJournal(path)

    def __enter__(self) -> TunerJournal:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._journal is not None:
            self._journal.close()

    def begin(
        self, settings: Mapping[str, object], resume: bool, limits: Mapping[str, int | None]
    ) -> list[Event]:
        """Store or compare the settings and return the events so far.

        Parameters
        ----------
        limits : how far the run may go; a resumed run may have larger ones

        Raises
        ------
        ConfigError
            If the file holds a run that is not to be resumed.
        JournalError
            If it was made with other settings, or a limit is smaller than before.
        """
        if self._journal is None:
            if resume:
                raise ConfigError("resume: expected the journal of a run, got none; pass journal=FILE")
            return []
        events = list(self._journal.events())
        if events and not resume:
            raise ConfigError(
                f"journal: expected a new file, got {self._journal.path}, which holds a run; pass "
                "resume=True to continue that run"
            )
        self._journal.begin(settings, limits)
        return events

    def write(self, event: Event) -> None:
        """Append an event in one commit."""
        if self._journal is not None:
            self._journal.write([event])


def checkpoint_directory(path: str | os.PathLike[str] | None) -> Path | None:
    """Return the directory of the checkpoints that belong to a journal."""
    return None if path is None else Path(path).with_name(Path(path).name + ".checkpoints")


def places_event(new: Mapping[int, Trial], targets: Mapping[int, int]) -> Event:
    """Return the event of trials that got a place.

    Parameters
    ----------
    new : those that begin
    targets : trial -> round until which it may run, of those that go on
    """
    entries: dict[str, dict[str, object]] = {}
    for number, trial in new.items():
        entry = entries[str(number)] = {"bracket": trial.bracket, "target": trial.target}
        if trial.origin:
            entry |= {"parent": trial.parent, "born": trial.born, "origin": trial.origin}
    values = {"new": entries, "targets": {str(number): target for number, target in targets.items()}}
    return Event(PLACES, arrays={str(number): trial.point for number, trial in new.items()}, values=values)


def step_event(
    results: Mapping[int, TrialRound | str], visits: Mapping[int, list[int]], wasted: int
) -> Event:
    """Return the event of one round of all running trials.

    Parameters
    ----------
    results : trial -> what the round brought, or why the trial failed
    visits : trial -> how often it has had each block of clients
    wasted : client-rounds of rounds that brought nothing
    """
    values = {
        "rounds": {str(k): asdict(done) for k, done in results.items() if isinstance(done, TrialRound)},
        "failures": {str(k): reason for k, reason in results.items() if isinstance(reason, str)},
        "visits": {str(k): counts for k, counts in visits.items()},
        "wasted": wasted,
    }
    return Event(STEP, values=values)


def apply(trials: dict[int, Trial], event: Event, space: SearchSpace) -> None:
    """Bring the trials to the state after an event."""
    values = cast(Mapping[str, Any], event.values)
    if event.kind == PLACES:
        for name, entry in values["new"].items():
            point = np.array(event.arrays[name], dtype=np.float64)
            config = space.decode(point)
            trials[int(name)] = Trial(int(name), config, point, **entry)
        for name, target in values["targets"].items():
            trials[int(name)] = trials[int(name)].until(target)
    elif event.kind == STEP:
        for name, done in values["rounds"].items():
            trials[int(name)] = trials[int(name)].learn(TrialRound(**done))
        for name, reason in values["failures"].items():
            trials[int(name)] = trials[int(name)].fail(reason)
    elif event.kind == JUDGED:
        trial = trials[int(values["trial"])]
        trials[trial.number] = replace(trial, judged=values["value"])
