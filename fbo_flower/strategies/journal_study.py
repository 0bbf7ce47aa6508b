"""The study in a server's journal, also of a server that runs or has died.

The steps in the journal are repeated with the replies in it, as for resuming. So the study holds what the
server would have saved at this point: what agents disclosed, and no more.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from fbo_flower.algorithms import make_algorithm, with_secure_sums
from fbo_flower.errors import ConfigError, JournalError
from fbo_flower.numerics.seeding import generator
from fbo_flower.storage.read_study_journal import StudyJournalReader
from fbo_flower.strategies.federation_event import federation_from_event
from fbo_flower.strategies.recorder import Recorder
from fbo_flower.strategies.registration import AgentRegistry
from fbo_flower.strategies.settings import ASYNC, StrategySettings, study_settings
from fbo_flower.strategies.study_run import StudyRun
from fbo_flower.strategies.study_start import replaying
from fbo_flower.study.study import Study


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
    reader = StudyJournalReader(Path(path), check=True)
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
    algorithm = with_secure_sums(make_algorithm(str(recorded["algorithm"]), dict(recorded["options"])))
    with replaying():
        study, federation = federation_from_event(events[0])
        registry = AgentRegistry(federation.space)
        registry.nodes.update(dict.fromkeys(federation.agents, 0))
        clock_times = any("time" in event.values for event in events)
        seed, label = int(recorded["seed"]), str(recorded["label"])
        run = StudyRun(
            algorithm, seed, study, registry, Recorder(label, federation.space, clock=lambda: 0.0),
            algorithm.init(federation, generator(seed, "server", "init")), clocked=clock_times,
            asynchronous=recorded.get("mode") == ASYNC, max_staleness=recorded.get("max_staleness"),
        )  # fmt: skip
        run.replay(events[1:])
    for agent in run.registry.incarnations:
        registry.nodes.setdefault(agent, 0)
    run.seconds_before = sum(row["seconds"] for row in run.recorder.rounds)
    num_rounds = next((e.values["num_rounds"] for e in reversed(events) if "num_rounds" in e.values), None)
    status = "finished" if events[-1].kind == "end" else "interrupted"
    settings = StrategySettings(
        None, None, float(recorded["fraction"]), 0.0, 0.0, 1.0, None, "", label, run.recorder.minimize
    )
    requested = num_rounds if isinstance(num_rounds, int) else None
    described: dict[str, Any] = study_settings(settings, run, requested, status, 0.0)
    results = run.algorithm.results(run.state)
    return run.recorder.study(described, results)
