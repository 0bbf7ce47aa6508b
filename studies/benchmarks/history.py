"""Add the whole runs that `make bench` has measured to a history, and draw it.

    python -m studies.benchmarks.history runs/history.csv [--picture history.png] [--cells DIRECTORY]

A line of the history is one run of one night. Machines differ from night to night, so the picture shows
ratios within a night: seconds per round divided by those of an app that does nothing, with as many agents.
"""

from __future__ import annotations

import csv
import json
import os
import subprocess
from collections import defaultdict
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from studies.benchmarks.bench import ROOT, options
from studies.benchmarks.page import find, per_round

COLUMNS = ("time", "version", "commit", "run", "agents", "seconds_per_round", "ratio_to_idle", "memory_gb")


def commit() -> str:
    """Return the short name of the commit that was measured; "" outside a repository."""
    if os.environ.get("GITHUB_SHA"):
        return os.environ["GITHUB_SHA"][:10]
    words = ["git", "-C", str(ROOT), "rev-parse", "--short=10", "HEAD"]
    return subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip()


def lines(cells: list[dict[str, Any]], time: datetime) -> list[dict[str, Any]]:
    """Return the lines of a night, one for each run with a result."""
    found = []
    version = metadata.version("fbo-flower")
    common = {"time": time.isoformat(timespec="seconds"), "version": version, "commit": commit()}
    for cell in cells:
        seconds = per_round(cell)
        if seconds is None or "sleep" in cell:
            continue
        floor = per_round(find(cells, "idle", cell["engine"], cell["agents"]))
        found.append(
            {
                **common,
                "run": f"{cell['what']}, {cell['engine']}",
                "agents": cell["agents"],
                "seconds_per_round": f"{seconds:.4g}",
                "ratio_to_idle": f"{seconds / floor:.4g}" if floor else "",
                "memory_gb": f"{cell['memory'] / 1e9:.3g}" if "memory" in cell else "",
            }
        )
    return found


def draw(history: list[dict[str, Any]], picture: Path) -> None:
    """Draw the ratios over the nights, a panel for each run and a line for each number of agents."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    panels: dict[str, dict[int, list[tuple[datetime, float]]]] = defaultdict(lambda: defaultdict(list))
    for line in history:
        if line["ratio_to_idle"] and not line["run"].startswith("idle"):
            point = datetime.fromisoformat(line["time"]), float(line["ratio_to_idle"])
            panels[line["run"]][int(line["agents"])].append(point)
    if not panels:
        return
    figure, axes = plt.subplots(
        len(panels), 1, figsize=(8, 2.2 * len(panels)), sharex=True, squeeze=False, layout="constrained"
    )
    for axis, (run, curves) in zip(axes[:, 0], sorted(panels.items()), strict=True):
        for agents, points in sorted(curves.items()):
            axis.plot(*zip(*sorted(points), strict=True), marker="o", markersize=3, label=f"{agents} agents")
        axis.set_title(run, fontsize=10, loc="left")
        axis.set_ylim(0, 1.15 * max(value for points in curves.values() for _, value in points))
        axis.grid(alpha=0.3)
        axis.legend(fontsize=8, loc="lower left")
    figure.supylabel("seconds per round / those of an app that does nothing", fontsize=9)
    figure.autofmt_xdate()
    figure.savefig(picture, dpi=120)


def main() -> None:
    """Append the night's lines and draw the whole history."""
    given = options(__doc__, "history", picture=None, cells=ROOT / "runs" / "benchmarks" / "cells")
    cells = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(given.cells.glob("*.json"))]
    if not cells:
        raise SystemExit(f"--cells: expected results of `make bench`, got none in {given.cells}")
    new = lines(cells, datetime.now(UTC))
    is_new = not given.history.exists()
    with given.history.open("a", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        if is_new:
            writer.writeheader()
        writer.writerows(new)
    print(f"{len(new)} lines added to {given.history}")
    if given.picture:
        with given.history.open(encoding="utf-8", newline="") as file:
            draw(list(csv.DictReader(file)), given.picture)


if __name__ == "__main__":
    main()
