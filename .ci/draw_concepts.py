"""Draw the pictures of `docs/concepts.md`: `python .ci/draw_concepts.py`."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

FOLDER = Path(__file__).parents[1] / "docs" / "concepts"
SITES = ("north", "south", "east")
TEAL, GREY = "#d5ecea", "#eeeeee"


def box(axes: Axes, x: float, y: float, text: str, colour: str, width: float = 2.4) -> None:
    corner = (x - width / 2, y - 0.45)
    axes.add_patch(plt.Rectangle(corner, width, 0.9, facecolor=colour, edgecolor="black"))
    axes.text(x, y, text, ha="center", va="center", fontsize=9)


def arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float]) -> None:
    axes.annotate("", end, start, arrowprops={"arrowstyle": "->", "lw": 1.4})


def blank(width: float, height: float) -> Axes:
    axes = plt.figure(figsize=(width, height)).add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, width), ylim=(0, height))
    axes.axis("off")
    return axes


def save(name: str) -> None:
    plt.savefig(FOLDER / name, dpi=120, metadata={"Software": None})
    plt.close()


def a_round() -> None:
    axes = blank(9, 3.6)
    box(axes, 4.5, 3.0, "server: the algorithm\nmakes tasks, learns from reports", TEAL, 3.6)
    for x, site in zip((1.5, 4.5, 7.5), SITES, strict=True):
        box(axes, x, 0.7, f"agent {site}: one trial\non its own data", GREY)
        top = 4.5 + (x - 4.5) * 0.4
        arrow(axes, (top - 0.15, 2.5), (x - 0.15, 1.2))
        arrow(axes, (x + 0.15, 1.2), (top + 0.15, 2.5))
    axes.text(4.2, 1.85, "task", ha="right", fontsize=9)
    axes.text(4.8, 1.85, "report", ha="left", fontsize=9)
    save("round.png")


def what_leaves() -> None:
    axes = blank(9, 3)
    axes.add_patch(plt.Rectangle((0.2, 0.2), 5.6, 2.6, fill=False, linestyle="--"))
    axes.text(0.4, 2.5, "agent", fontsize=10, weight="bold")
    box(axes, 1.7, 1.8, "data", GREY)
    box(axes, 1.7, 0.7, "trials, learning curves", GREY)
    box(axes, 4.5, 1.25, "report, checked by\nthe operator's limits", TEAL, 2.2)
    arrow(axes, (2.95, 0.9), (3.35, 1.1))
    arrow(axes, (1.7, 1.35), (1.7, 1.15))
    box(axes, 7.6, 1.25, "server", TEAL, 2)
    arrow(axes, (5.6, 1.25), (6.6, 1.25))
    save("leaves.png")


def sync_async() -> None:
    figure, pair = plt.subplots(1, 2, figsize=(9, 2.8), sharey=True)
    for axes, title, wait in zip(
        pair, ("sync: wait for the slowest", "async: go on at once"), (True, False), strict=True
    ):
        for row, seconds in enumerate((1, 2, 3)):
            step = 3 if wait else seconds
            for begin in range(0, 9, step):
                width = min(seconds, 9 - begin)
                axes.barh(row, width, left=begin, color=TEAL, edgecolor="black", height=0.6)
                if wait and seconds < step:
                    axes.barh(
                        row,
                        step - seconds,
                        left=begin + seconds,
                        color="white",
                        edgecolor="grey",
                        hatch="//",
                        height=0.6,
                    )
        axes.set(title=title, xlabel="time", yticks=range(3), yticklabels=SITES, xticks=[0, 3, 6, 9])
    figure.text(0.5, 0.01, "filled: a trial; hatched: the agent waits", ha="center", fontsize=8)
    figure.tight_layout(rect=(0, 0.05, 1, 1))
    save("sync-async.png")


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    a_round()
    what_leaves()
    sync_async()
