"""Write the tables and pictures of `fts.messages`, with the published results beside ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fbo_flower.numerics.arrays import Array
from fbo_flower.reports.pictures import algorithm_style, save_figure
from studies.jobs import has_result, load_job
from studies.papers import compare
from studies.papers.panels import panels
from studies.papers.tables import table, write_results

NUM_FEATURES = (50, 100, 150, 200)
ALL_TARGETS = 100  # number of features for which all fields are targets
# mean best AUC after 50 iterations over fields 1-6 and 5 starts, by the published code
PUBLISHED = {
    "fts": (0.8194, 0.8270, 0.8260, 0.8247),
    "rgpe": (0.8190, 0.7987, 0.8032, 0.8096),
    "taf": (0.7141, 0.7284, 0.7369, 0.8057),
}
PUBLISHED_TS = 0.8213
PUBLISHED_SECONDS = {"ts": "60", "fts": "44-52", "rgpe": "3474-9299", "taf": "4034-5424"}
COLOURS = {name: algorithm_style(name).color for name in ("ts", "fts", "rgpe", "taf")} | {
    "fts 1-1/sqrt(t)": "#56B4E9",
    "fts portfolio": "#009E73",
    "taf seen": "#E69F00",
}


TIMED = ("fts 1-1/sqrt(t)", "rgpe", "taf")  # timed against the number of agents


@dataclass(frozen=True)
class Size:
    """The size of the experiment, except the number of starts, which may grow."""

    num_iterations: int
    num_fields: int
    num_targets: int


def job_name(variant: str, num_features: int, start: int) -> str:
    """Return the name of a job."""
    return f"{variant.replace(' ', '_').replace('/', '_')}-{num_features}-{start}"


def floats_sent(variant: str, num_features: int) -> int:
    """Return how many numbers an agent sends: `omega`, or a posterior and its best value."""
    if variant.startswith("fts"):
        return num_features
    return num_features * (num_features + 3) // 2 + (variant == "taf")


def report(
    directory: Path,
    size: Size,
    starts: int,
    all_starts: int,
    variants: Sequence[str],
    general: Sequence[str],
    counts: Sequence[int],
) -> list[Path]:
    """Write `results.md`, `messages.png` and `targets.png` from the finished jobs.

    Parameters
    ----------
    starts, all_starts : number of finished starts with the first fields, and with all fields, as targets
    """
    targets, last = size.num_targets, size.num_iterations

    def of(variant: str, num_features: int, key: str = "curves") -> Array:
        names = [job_name(variant, num_features, s) for s in range(starts)]
        return np.stack([load_job(directory, name)[key] for name in names])

    everybody = np.stack([load_job(directory, f"ts-{s}")["curves"] for s in range(starts)])
    alone = everybody[:, :targets]
    seconds = np.stack([load_job(directory, f"ts-{s}")["seconds"] for s in range(starts)])
    known = {m: [v for v in variants if has_result(directory, job_name(v, m, 0))] for m in NUM_FEATURES}
    text = [
        f"Fields 1-{targets} in turn the target, {starts} starts, {last} iterations, others hold 50 "
        "observations. AUC; s.e. over the targets; differences are paired by target and start. Published: 5 "
        "other starts.\n",
        "| M | variant | best | minus ts | published | numbers from each agent | numbers to the target "
        "| CPU seconds per run | published |",
        "|" + "---|" * 9,
        f"| - | ts | {_level(alone, last)} | - | {PUBLISHED_TS} | 0 | 0 | {np.median(seconds[:, -1]):.2f} "
        f"| {PUBLISHED_SECONDS['ts']} |",
    ]
    for i, m in enumerate(NUM_FEATURES):
        for variant in known[m]:
            mine = of(variant, m)
            published = f"{PUBLISHED[variant][i]:.4f}" if variant in PUBLISHED else "-"
            taken = np.median(of(variant, m, "seconds")[:, :, -1])
            down = of(variant, m, "floats")[:, :, 0].mean()
            text.append(
                f"| {m} | {variant} | {_level(mine, last)} | {compare.gain(mine, alone, last)} | {published} "
                f"| {floats_sent(variant, m)} | {down:.0f} | {taken:.2f} "
                f"| {PUBLISHED_SECONDS.get(variant, '-')} |"
            )
    checkpoints = [t for t in compare.CHECKPOINTS if t <= last]
    panel = {"ts": alone} | {v: of(v, ALL_TARGETS) for v in variants}
    text.append(f"\n## Fields 1-{targets} over the iterations, M = {ALL_TARGETS}\n")
    text.append(compare.markdown_table(panel, {}, checkpoints=checkpoints))
    text.append(_each_target(panel, last))
    for variant in general:
        names = [f"growing-{job_name(variant, ALL_TARGETS, s)}" for s in range(starts)]
        grown = np.stack([load_job(directory, name)["curves"] for name in names])
        both = {"ts": alone, f"{variant}, once": panel[variant], f"{variant}, growing": grown}
        text.append(f"\n## The others continue to tune (Fig. 4), fields 1-{targets}\n")
        text.append(
            "once: messages before the first iteration; growing: new ones before every iteration, from "
            "agents that have one observation more each time\n"
        )
        text.append(compare.markdown_table(both, {}, checkpoints=checkpoints))
    seconds_of, grows = _agents(directory, starts, counts)
    text.append(seconds_of)
    if all_starts:
        cells = {v: [f"all-{job_name(v, ALL_TARGETS, s)}" for s in range(all_starts)] for v in variants}
        fields = {
            v: np.stack([load_job(directory, n)["curves"] for n in names]) for v, names in cells.items()
        }
        text.append(f"\n## All {size.num_fields} fields as targets, M = {ALL_TARGETS}, {all_starts} starts\n")
        text.append(
            compare.markdown_table({"ts": everybody[:all_starts], **fields}, {}, checkpoints=checkpoints)
        )
    results = write_results(directory, text)
    pictures = [directory / "messages.png", directory / "targets.png"]
    shown = {v: {m: of(v, m)[:, :, last] for m in NUM_FEATURES if v in known[m]} for v in variants}
    against = {v: (of(v, ALL_TARGETS, "seconds"), panel[v]) for v in variants}
    against["ts"] = (np.repeat(seconds[:, None, :], targets, axis=1), alone)
    draw_messages(shown, alone[:, :, last], against, grows, pictures[0])
    draw_targets(panel, pictures[1])
    return [results, *pictures]


def _level(curves: Array, iteration: int) -> str:
    estimate = compare.clustered(curves[:, :, iteration])
    return f"{estimate.mean:.4f} ± {estimate.stderr:.4f}"


def _each_target(panel: Mapping[str, Array], last: int) -> str:
    """Return a table of the best values after the last iteration by target, s.e. over starts (Fig. 5)."""
    targets = panel["ts"].shape[1]
    title = f"\n## Target by target, M = {ALL_TARGETS}, best after {last} (Figs. 3a and 5)\n\n"
    rows = []
    for name, curves in panel.items():
        values = curves[:, :, last]
        stderr = values.std(axis=0, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else [np.nan] * targets
        cells = [f"{m:.4f} ± {s:.4f}" for m, s in zip(values.mean(axis=0), stderr, strict=True)]
        rows.append([name, *cells])
    return title + table(["variant", *(f"field {k + 1}" for k in range(targets))], rows)


def _agents(directory: Path, starts: int, counts: Sequence[int]) -> tuple[str, dict[str, Array]]:
    """Return CPU seconds against the number of other agents (Fig. 3d), as text and as arrays `(counts,)`."""
    title = "\n## CPU seconds per run against the number of other agents (Fig. 3d), M = 100\n\n"
    found = {}
    for variant in TIMED:
        taken = [
            [
                load_job(directory, f"agents-{c}-{job_name(variant, ALL_TARGETS, s)}")["seconds"][0, -1]
                for s in range(starts)
            ]
            for c in counts
        ]
        found[variant] = np.stack([np.array(counts, dtype=np.float64), np.median(taken, axis=1)])
    rows = [[variant, *(f"{t:.2f}" for t in seconds[1])] for variant, seconds in found.items()]
    return title + table(["variant", *map(str, counts)], rows), found


def draw_messages(
    shown: Mapping[str, Mapping[int, Array]],
    alone: Array,
    against: Mapping[str, tuple[Array, Array]],
    grows: Mapping[str, Array],
    path: Path,
) -> None:
    """Draw best value against message size, best value against time, time against agents."""
    figure, (left, middle, right) = panels(3, 3, 5.0, 4.2)
    level = compare.clustered(alone)
    left.axhline(level.mean, color="black", linestyle="--", linewidth=1, label="ts")
    for variant, by_size in shown.items():
        sizes = [floats_sent(variant, m) for m in by_size]
        estimates = [compare.clustered(values) for values in by_size.values()]
        means, errors = (
            [e.mean for e in estimates],
            [compare.clustered(v - alone).stderr for v in by_size.values()],
        )
        left.errorbar(sizes, means, errors, marker="o", color=COLOURS[variant], label=variant, capsize=2)
        if variant in PUBLISHED:
            left.plot(
                sizes, PUBLISHED[variant][: len(sizes)], "o:", color=COLOURS[variant], mfc="none", alpha=0.6
            )
    left.set_xscale("log")
    left.set_xlabel("numbers from each agent")
    left.set_ylabel("best AUC after the last iteration")
    left.set_title("Fig. 2: size of messages; hollow: published", loc="left", fontsize=11)
    for variant, (seconds, curves) in against.items():
        style = "--" if variant == "ts" else "-"
        x, y = np.median(seconds, axis=(0, 1)), curves.mean(axis=(0, 1))
        middle.plot(x[-len(y) :], y, style, color=COLOURS[variant], linewidth=1.8)
    middle.set_xscale("log")
    middle.set_xlabel("CPU seconds, including the others' messages")
    middle.set_ylabel("best AUC so far")
    middle.set_title("Fig. 3a: time, with M = 100 random features", loc="left", fontsize=11)
    for variant, (count, taken) in grows.items():
        right.plot(count, taken, "o-", color=COLOURS[variant])
    right.set_xlabel("other agents")
    right.set_ylabel("CPU seconds of a run")
    right.set_ylim(bottom=0)
    right.set_title("Fig. 3d: agents, with M = 100 random features", loc="left", fontsize=11)
    _save(figure, left, path)


def draw_targets(panel: Mapping[str, Array], path: Path) -> None:
    """Draw best value against iterations, one axis per target (Fig. 5)."""
    count = next(iter(panel.values())).shape[1]
    figure, axes = panels(count, 3, 4.6, 3.4)
    for k, axis in enumerate(axes):
        for name, curves in panel.items():
            style = "--" if name == "ts" else "-"
            axis.plot(curves[:, k].mean(axis=0), style, color=COLOURS[name], label=name, linewidth=1.5)
        axis.set_title(f"field {k + 1}", loc="left", fontsize=11)
        axis.set_xlabel("iterations")
    axes[0].set_ylabel("best AUC so far")
    _save(figure, axes[0], path)


def _save(figure: Any, axis: Any, path: Path) -> None:
    figure.legend(*axis.get_legend_handles_labels(), loc="outside lower center", ncols=8, frameon=False)
    save_figure(figure, path, 120)
