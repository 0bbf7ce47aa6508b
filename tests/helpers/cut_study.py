"""A study that was cut off in its second round, and its journals."""

from __future__ import annotations

from pathlib import Path

from fbo_flower.clients import client_app
from fbo_flower.simulation.grids import InProcessGrid
from fbo_flower.space import Float, SearchSpace
from fbo_flower.storage import StudyJournal
from fbo_flower.strategies import FTS
from fbo_flower.study import Study

SPACE = SearchSpace({"x": Float(0.0, 1.0), "y": Float(0.0, 1.0)})
LAST_WRITE = 11  # of the server: it dies with one of two replies of round 2 in its journal


class Cut(BaseException):
    """Stands for the server's death."""


class Objective:
    """A hill without noise, whose second trial fails; counts its evaluations."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, int]] = []

    def __call__(self, config, context):
        self.calls.append((context.agent, context.trial))
        if context.trial == 1:
            raise ValueError("planted")
        return -((config["x"] - 0.25) ** 2) - config["y"] ** 2


class OneByOne(InProcessGrid):
    """Hands over one reply at a time."""

    def pull_messages(self, message_ids):
        for message_id in message_ids:
            if replies := super().pull_messages([message_id]):
                return replies
        return []


def start(directory: Path, objective: Objective) -> Study:
    """Begin or resume the study whose journals are in `directory`."""
    journals = {agent: {"journal": str(directory / f"agent_{agent}.db")} for agent in range(2)}
    grid = OneByOne(client_app(objective, SPACE, seed=7, disclose="trials"), 2, node_configs=journals)
    strategy = FTS(
        num_agents=2, seed=7, num_features=4, num_candidates=16, num_path_features=8, advice="random"
    )
    return strategy.start(grid, num_rounds=3, journal=directory / "study.db", resume=True).study


def write(directory: Path) -> None:
    """Write the journals of the study as it was cut off in round 2."""
    original, count = StudyJournal.write, 0

    def cut(self, events):
        nonlocal count
        original(self, events)
        count += 1
        if count == LAST_WRITE:
            raise Cut

    StudyJournal.write = cut
    try:
        start(directory, Objective())
    except Cut:
        pass
    finally:
        StudyJournal.write = original
