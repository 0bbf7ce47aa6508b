"""Replay RFMS in the paper's setting on tables: all pairs of openbox and lockbox, 20 + 40 configurations.

The tables are computed first, then every method is replayed on them and measured (`rfms.replay`). A table
counts as one repetition, because its replications and lockboxes share its losses. Tables with the same seed
share rows, which the standard errors ignore.

[Sun2019] Sun et al. High dimensional restrictive federated model selection with multi-objective Bayesian
optimization over shifted distributions. IntelliSys 2019, sections 4 and 5.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from fbo_flower.reports.pictures import new_figure, save_figure
from fbo_flower.reports.selection import PROTOCOLS
from studies.experiment import Arrays, Experiment, Line, OnJob, Part, run_jobs
from studies.papers.rfms import replay
from studies.papers.rfms.replay import CRITERIA, METHODS, Key, Size

SMALL: tuple[tuple[str, Mapping[str, Any]], ...] = (
    ("heart-4sites", {}),
    *((name, {"split": s}) for name in ("breast-cancer-5sites", "fri-5sites") for s in ("drc", "srs")),
)
LARGE: tuple[tuple[str, Mapping[str, Any]], ...] = tuple(
    (name, {"split": s}) for name in ("semeion-5sites", "madelon-5sites") for s in ("drc", "srs")
)
WIDE = tuple(("gravier-5sites", {"split": s}) for s in ("drc", "srs"))  # too wide for an elastic net
SEEDS = {"elastic-net": range(3), "svm": range(2)}  # of the small data sets; the large ones have seed 0


def tables(quick: bool) -> list[Key]:
    """Return all tables, hours of work: up to three seeds of the small data sets; quick: two of one set."""
    if quick:
        return replay.keys("breast-cancer-5sites", [0], {"split": "drc", "learner": "elastic-net"}, (1, 2))
    jobs = [(job, seed, name) for job in SMALL for name, seeds in SEEDS.items() for seed in seeds]
    jobs += [(job, 0, name) for job in LARGE for name in SEEDS] + [(job, 0, "svm") for job in WIDE]
    return [
        key
        for (name, more), seed, learner in jobs
        for key in replay.keys(name, [seed], {**more, "learner": learner})
    ]


def source(key: Key) -> str:
    """Return the source of a table's rows: data set and split."""
    return " ".join([key.problem.rsplit("-", 1)[0], *filter(None, [key.options.get("split")])])


def parts(quick: bool, directory: Path) -> list[Part]:
    """Return the methods on all tables and by source, and the criteria."""
    keys, size = tables(quick), Size(6, 10, 40) if quick else Size()
    common = {"keys": keys, "directory": str(directory), "num_replications": 1 if quick else 20, "size": size}
    ranges, first = {"all": range(len(keys))}, 0
    for name, group in groupby(keys, source):
        ranges[name] = range(first, first := first + len(list(group)))
    whole: dict[str, Any] = {"run": measure, "problems": ["tables"], "joint": True, "fixed": True}
    whole |= {"common": common, "files": "tables"}
    return [
        *(Part(f"methods, {n}", rows=[*METHODS], seeds=ranges[n], baseline="lso", **whole) for n in ranges),
        Part("criteria, all", rows=[*CRITERIA], seeds=ranges["all"], baseline="mean", **whole),
    ]


def prepare(directory: Path, parts: Sequence[Part], num_workers: int, on_job: OnJob | None) -> None:
    """Compute the missing parts of the tables."""
    keys, size = parts[0].common["keys"], parts[0].common["size"]
    run_jobs(
        [job for key in keys for job in replay.jobs(key, size)], directory, num_workers, on_job, "tables"
    )


def draw_wins(directory: Path, lines: Sequence[Line]) -> list[Path]:
    """Draw both protocols' win matrices: how often the row's method has the larger volume."""
    figure: Any = new_figure(9.6, 4.6)
    names, shares = list(METHODS), {(x.row, x.metric): x.mean for x in lines if x.part == "methods, all"}
    axes: Any = figure.subplots(1, len(PROTOCOLS), sharey=True)
    for protocol, axis in zip(PROTOCOLS, axes, strict=True):
        share = np.array([[shares[a, f"{protocol}: wins over {b}"] for b in names] for a in names])
        image = axis.imshow(share, vmin=0, vmax=1, cmap="RdBu")
        axis.set_xticks(range(len(names)), names, rotation=45, ha="right", rotation_mode="anchor")
        axis.set_yticks(range(len(names)), names)
        axis.set_title(f"{protocol} protocol", loc="left", fontsize=11)
        for (i, j), value in np.ndenumerate(share):
            if np.isfinite(value):
                colour = "white" if abs(value - 0.5) > 0.3 else "black"
                axis.text(j, i, f"{value:.2f}", ha="center", va="center", fontsize=8, color=colour)
    axes[0].set_ylabel("method of the row")
    label = "share of replications in which the row\nhas the larger volume, ties count half"
    figure.colorbar(image, ax=list(axes), label=label, shrink=0.8)
    return [save_figure(figure, directory / "wins.png")]


EXPERIMENT = Experiment(
    "RFMS: all methods on tabulated sites, their volumes and shipped models", parts, prepare, draw_wins
)


def measure(
    problem: str, place: int, keys: Sequence[Key], directory: str, num_replications: int, size: Size
) -> Arrays:
    """Replay and measure all methods on a table, by its place among `keys`."""
    settings = replay.settings_of(directory, keys[place], size)
    return replay.measure(settings, keys[place], num_replications, size)
