"""Write the tables and pictures of `fed-ei`: gains over the best optimiser that an agent can run alone."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fbo_flower.numerics.arrays import Array
from fbo_flower.reports.pictures import save_figure
from fbo_flower.storage import atomic_file
from studies.jobs import has_result, load_job
from studies.papers.panels import panels

BASELINE = "ei"
CHECKPOINTS = (4, 5, 10, 20)
LATE_CHECKPOINTS = (1, 2, 3, 5, 10)
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
FIRST_DRAWN = 3

Found = dict[str, Array]  # row -> `(seeds, agents, checkpoints)`; of some rows the first agents only
Setting = tuple[str, int]  # label, number of agents


def job_name(label: str, agents: int, row: str, variant: int, seed: int) -> str:
    """Return the name of a job: the best values of one variant of a row."""
    return f"{label}-{agents}-{row}-{variant}-{seed}"


def write(
    directory: Path,
    settings: Sequence[Setting],
    variants: Mapping[str, int],
    seeds: Sequence[int],
    late: Sequence[str],
) -> list[Path]:
    """Write `results.md`, `results.csv`, `gains.png`, `late.png` from the finished jobs; return them.

    Parameters
    ----------
    variants : row -> number of variants, of which the better one counts
    """
    loaded = {s: _loaded(directory, s, variants, seeds) for s in settings}
    lines = [f"Seeds {seeds[0]} to {seeds[-1]}; differences from `{BASELINE}` at {CHECKPOINTS} evaluations."]
    table = []
    for setting, (found, deviation) in loaded.items():
        for row, values in found.items():
            difference = paired(values, found[BASELINE]) if row != BASELINE else values.mean(axis=1)
            error = (
                difference.std(axis=0, ddof=1) / np.sqrt(len(values))
                if len(values) > 1
                else deviation * np.nan
            )
            numbers = zip(CHECKPOINTS, difference.mean(axis=0), error, deviation, strict=False)
            table += [[*setting, row, at, len(values), *numbers_] for at, *numbers_ in numbers]
    rows = [row for row in variants if row != BASELINE]
    lines += ["", *_table(loaded, rows), "", *_summary(loaded, rows)]
    joined = {label: _late(directory, label, seeds) for label in late}
    lines += ["", f"## Late joiners: fed-ei minus {BASELINE}", "", *_late_table(joined)]
    files = [directory / name for name in ("results.md", "results.csv", "gains.png", "late.png")]
    with atomic_file(files[0], text=True) as stream:
        stream.write("\n".join(lines) + "\n")
    with atomic_file(files[1], text=True) as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(
            ["problem", "agents", "row", "evaluations", "seeds", "mean", "error", "deviation of ei"]
        )
        writer.writerows([[f"{v:.5g}" if isinstance(v, float) else v for v in line] for line in table])
    draw_gains(directory, loaded, variants, seeds, files[2])
    draw_late(joined, files[3])
    return files


def _loaded(
    directory: Path, setting: Setting, variants: Mapping[str, int], seeds: Sequence[int]
) -> tuple[Found, Array]:
    """Return the values at the checkpoints, and the baseline's deviation over agents and seeds.

    Of a row's variants the one with the better mean over all seeds counts, at each checkpoint.
    """
    found: Found = {}
    deviation = np.empty(0)
    for row, number in variants.items():
        tried = [_curves(directory, setting, row, variant, seeds) for variant in range(number)]
        every = [curves for curves in tried if curves is not None]
        if not every:
            continue
        at = [n - 1 for n in CHECKPOINTS if n <= every[0].shape[2]]
        values = np.array([curves[:, :, at] for curves in every])
        better = values.mean(axis=(1, 2)).argmax(axis=0)
        found[row] = np.stack([values[b, :, :, place] for place, b in enumerate(better)], axis=2)
        if row == BASELINE:
            deviation = values[-1].reshape(-1, len(at)).std(axis=0)
    return found, deviation


def paired(values: Array, others: Array) -> Array:
    """Return differences `(seeds, checkpoints)`, means over the agents that both rows have."""
    agents = min(values.shape[1], others.shape[1])
    return np.asarray((values[:, :agents] - others[:, :agents]).mean(axis=1), dtype=np.float64)


def _curves(directory: Path, setting: Setting, row: str, variant: int, seeds: Sequence[int]) -> Array | None:
    """Return the best values so far `(seeds, agents, budget)`; None if not all seeds have been run."""
    names = [job_name(*setting, row, variant, seed) for seed in seeds]
    if not all(has_result(directory, name) for name in names):
        return None
    return np.array([load_job(directory, name)["best"] for name in names])


def _table(loaded: Mapping[Setting, tuple[Found, Array]], rows: Sequence[str]) -> list[str]:
    """Return differences from the baseline with their standard errors, a line per problem."""
    lines = _head(["problem", "agents", *rows])
    for (label, agents), (found, _) in loaded.items():
        cells = [_shown(paired(found[row], found[BASELINE])) if row in found else "" for row in rows]
        lines.append("| " + " | ".join([label, str(agents), *cells]) + " |")
    return lines


def _summary(loaded: Mapping[Setting, tuple[Found, Array]], rows: Sequence[str]) -> list[str]:
    """Return the mean gain of each row in deviations of the baseline, and how often fed-ei is ahead of it."""
    lines = _head(["row", "mean gain", "fed-ei is ahead", "by two s.e.", "behind by one", "by two"])
    for row in [BASELINE, *rows]:
        gains, z = [], []
        for found, deviation in loaded.values():
            if row not in found or "fed-ei" not in found or len(found[row]) < 2:
                continue
            gain = paired(found[row], found[BASELINE]).mean(axis=0)
            gains.append(gain / np.maximum(deviation, 1e-12))
            ahead = paired(found["fed-ei"], found[row])
            z.append(ahead.mean(axis=0) / np.maximum(ahead.std(axis=0, ddof=1) / np.sqrt(len(ahead)), 1e-12))
        if not gains:
            continue
        counts = [
            np.sum(test, axis=0)
            for test in (np.array(z) > 0, np.array(z) > 2, np.array(z) < -1, np.array(z) < -2)
        ]
        cells = [" ".join(f"{gain:+.2f}" for gain in np.mean(gains, axis=0))]
        cells += [" ".join(map(str, count)) + f" of {len(z)}" for count in counts]
        lines.append("| " + " | ".join([row, *(cells if row != "fed-ei" else [cells[0], *[""] * 4])]) + " |")
    return lines


def _late(directory: Path, label: str, seeds: Sequence[int]) -> tuple[Array, Array]:
    """Return the best values so far of late joiners with `fed-ei` and alone."""
    names = [f"late-{label}-{seed}" for seed in seeds]
    found = [load_job(directory, name) for name in names if has_result(directory, name)]
    fed, alone = (np.array([f[name].mean(axis=0) for f in found]) for name in ("fed-ei", BASELINE))
    return fed, alone


def _late_table(joined: Mapping[str, tuple[Array, Array]]) -> list[str]:
    lines = _head(["problem", f"at {LATE_CHECKPOINTS}", f"{BASELINE} at 10"])
    for label, (fed, alone) in joined.items():
        at = [n - 1 for n in LATE_CHECKPOINTS if n <= fed.shape[1]]
        lines.append(f"| {label} | {_shown((fed - alone)[:, at])} | {alone[:, -1].mean():.3f} |")
    return lines


def _shown(differences: Array) -> str:
    """Return means and standard errors of differences `(seeds, checkpoints)`, with three digits."""
    means, count = differences.mean(axis=0), len(differences)
    errors = differences.std(axis=0, ddof=1) / np.sqrt(count) if count > 1 else means * np.nan
    digits = max(0, 2 - int(np.floor(np.log10(max(np.abs(means).max(), 1e-9)))))
    return "<br>".join(f"{m:+.{digits}f} ± {e:.{digits}f}" for m, e in zip(means, errors, strict=True))


def _head(columns: Sequence[str]) -> list[str]:
    return ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]


# -- pictures ----------------------------------------------------------------------------------


def draw_gains(
    directory: Path,
    loaded: Mapping[Setting, tuple[Found, Array]],
    variants: Mapping[str, int],
    seeds: Sequence[int],
    path: Path,
) -> None:
    """Draw the gains of all rows over the best variant of the baseline, a panel per problem."""
    figure, axes = panels(len(loaded), 4, 3.0, 2.3)
    for place, (axis, setting) in enumerate(zip(axes, loaded, strict=True)):
        axis.axhline(0.0, color="black", linewidth=1, linestyle="--")
        best: dict[str, Array] = {}
        for row, number in variants.items():
            every = [_curves(directory, setting, row, variant, seeds) for variant in range(number)]
            there = [curves for curves in every if curves is not None]
            if there:
                best[row] = max(there, key=lambda curves: float(curves[:, :, FIRST_DRAWN:].mean()))
        shown = [row for row in variants if row in best and row != BASELINE]
        for colour, row in zip(COLOURS, shown, strict=False):
            gain = paired(best[row], best[BASELINE])[:, FIRST_DRAWN - 1 :]
            _line(axis, np.arange(FIRST_DRAWN, best[row].shape[2] + 1), gain, colour, row)
        axis.set_title(f"{setting[0]}, {setting[1]} agents", loc="left", fontsize=9)
        axis.set_xlabel("evaluations per agent")
        if place % 4 == 0:
            axis.set_ylabel(f"gain over {BASELINE}")
        axis.margins(x=0)
    _legend(figure, axes)
    save_figure(figure, path, 120)


def draw_late(joined: Mapping[str, tuple[Array, Array]], path: Path) -> None:
    """Draw the best values so far of agents that join late, with `fed-ei` and alone."""
    figure, axes = panels(len(joined), 3, 3.8, 3.0)
    for place, (axis, (label, (fed, alone))) in enumerate(zip(axes, joined.items(), strict=True)):
        for curves, colour, text in (
            (fed, COLOURS[0], "joins a federation with fed-ei"),
            (alone, "#4D4D4D", f"begins alone with {BASELINE}"),
        ):
            _line(axis, 1.0 + np.arange(curves.shape[1]), curves, colour, text)
        axis.set_title(label, loc="left", fontsize=10)
        axis.set_xlabel("evaluations of the new agent")
        if place == 0:
            axis.set_ylabel("best value so far")
        axis.margins(x=0)
    _legend(figure, axes)
    save_figure(figure, path, 120)


def _line(axis: Any, x: Any, curves: Array, colour: str, text: str) -> None:
    """Draw the mean over seeds, with a band of one standard error to either side."""
    mean = curves.mean(axis=0)
    error = curves.std(axis=0, ddof=1) / np.sqrt(len(curves)) if len(curves) > 1 else np.zeros_like(mean)
    axis.plot(x, mean, color=colour, label=text, linewidth=1.6)
    axis.fill_between(x, mean - error, mean + error, color=colour, alpha=0.15, linewidth=0)


def _legend(figure: Any, axes: Sequence[Any]) -> None:
    handles = {
        text: handle for axis in axes for handle, text in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    figure.legend(
        handles.values(),
        handles.keys(),
        loc="outside lower center",
        ncols=min(6, len(handles)),
        frameon=False,
    )
