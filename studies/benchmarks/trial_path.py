"""What one steady trial runs: on the engine "inline", with 20 agents, in the rounds after the tenth."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping
from types import FrameType
from typing import Any

from greenlet import getcurrent  # type: ignore[import-untyped]  # it has no types

from fbo_flower import Float, SearchSpace
from studies.experiment import run

AGENTS, STEADY, LAST = 20, 10, 14
OURS = "/fbo_flower/"


class Path:
    """The calls of the package's functions while `on` is true."""

    def __init__(self) -> None:
        self.calls: Counter[tuple[str, str, int]] = Counter()
        self.types: set[type] = set()  # of which an object was made; named tuples are not seen
        self.deepest = 0
        self.on = False

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        if self.on and code.co_name == "__init__" and event == "call":
            kind = type(frame.f_locals.get("self"))
            self.types |= {kind} if kind.__module__.startswith("fbo_flower") else set()
        if self.on and event == "call" and OURS in code.co_filename:
            self.calls[code.co_filename, code.co_qualname, code.co_firstlineno] += 1
            self.deepest = max(self.deepest, depth_of(frame))

    def per_trial(self) -> tuple[float, ...]:
        """Return the numbers of files, functions, calls per trial, the depth, and the number of types."""
        calls, files = per_trial(sum(self.calls.values())), {file for file, _, _ in self.calls}
        return len(files), len(self.calls), calls, self.deepest, len(self.types)


def depth_of(frame: FrameType | None) -> int:
    """Return how many of the package's functions are on the stack, those of an agent's driver included."""
    depth, stack = 0, getcurrent()
    while frame is not None:
        depth += OURS in frame.f_code.co_filename
        frame = frame.f_back
        if frame is None and stack.parent is not None:
            frame, stack = stack.parent.gr_frame, stack.parent
    return depth


def per_trial(calls: int) -> float:
    """Return the number of calls for one trial."""
    return calls / (AGENTS * (LAST - STEADY))


def hill(config: Mapping[str, Any], centre: int) -> float:
    """Return a value that is largest at a point of the agent's own."""
    return -((config["x"] - centre / AGENTS) ** 2) - (config["y"] - 0.3) ** 2


def trace(name: str) -> Path:
    """Run a study and count the calls of its steady rounds."""
    path = Path()

    def note(progress: Any) -> None:
        path.on = STEADY <= progress.server_round < LAST

    space = SearchSpace({"x": Float(0, 1), "y": Float(0, 1)})
    sys.setprofile(path)
    try:
        run(hill, name, {}, LAST, space=space, agents=AGENTS, callbacks=[note])
    finally:
        sys.setprofile(None)
    return path


if __name__ == "__main__":
    from studies.benchmarks.speed import trial_path

    trial_path(only=sys.argv[1:] or ["random", "fts"])
