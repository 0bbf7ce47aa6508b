"""Count what one steady trial runs: files, functions and calls of the package, their depth, and its types.

    python -m studies.benchmarks.trial_path random fts

The engine is "inline", with 20 agents; only the rounds after the tenth are counted.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, MutableMapping
from types import FrameType
from typing import Any
from weakref import WeakKeyDictionary

from greenlet import getcurrent, greenlet  # type: ignore[import-untyped]  # it has no types

from fbo_flower import Float, SearchSpace
from studies.benchmarks.bench import say
from studies.experiment import head, run

AGENTS, STEADY, LAST = 20, 10, 14


class Path:
    """The calls of the package's functions while `on` is true."""

    def __init__(self) -> None:
        self.calls: Counter[tuple[str, str, int]] = Counter()
        self.types: set[type] = set()  # of which an object was made; named tuples are not seen
        self.depth: MutableMapping[greenlet, int] = WeakKeyDictionary()  # agents have stacks of their own
        self.deepest = 0
        self.on = False

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        if self.on and code.co_name == "__init__" and event == "call":
            kind = type(frame.f_locals.get("self"))
            self.types |= {kind} if kind.__module__.startswith("fbo_flower") else set()
        if "/fbo_flower/" not in code.co_filename:
            return
        stack = getcurrent()
        depth = self.depth.get(stack, self.depth.get(stack.parent or stack, 0))
        if event == "call":
            self.depth[stack] = depth + 1
            if self.on:
                self.calls[code.co_filename, code.co_qualname, code.co_firstlineno] += 1
                self.deepest = max(self.deepest, depth + 1)
        elif event == "return":
            self.depth[stack] = depth - 1

    def per_trial(self) -> Mapping[str, float]:
        """Return the numbers of files, functions, calls per trial, the depth, and the number of types."""
        files = {file for file, _, _ in self.calls}
        calls = sum(self.calls.values()) / (AGENTS * (LAST - STEADY))
        counts = {"files": len(files), "functions": len(self.calls), "calls": calls, "depth": self.deepest}
        return counts | {"types": len(self.types)}


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


def main() -> None:
    """Print a table, and with --all every function with its calls per trial."""
    print(head(["algorithm", "files", "functions", "calls", "depth", "types"]))
    for name in [word for word in sys.argv[1:] if word != "--all"] or ["random", "fts"]:
        path = trace(name)
        say(name, *(f"{number:.0f}" for number in path.per_trial().values()))
        if "--all" in sys.argv:
            for (file, function, _), calls in path.calls.most_common():
                number = calls / (AGENTS * (LAST - STEADY))
                print(f"{number:8.2f} {file.split('/fbo_flower/')[1]} {function}")


if __name__ == "__main__":
    main()
