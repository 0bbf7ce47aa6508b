"""Write the tables and pictures of the Co-KG experiment; curves are `(seeds, rounds)`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fbo_flower.numerics.arrays import Array
from fbo_flower.reports.pictures import algorithm_style, new_figure, save_figure
from studies.jobs import Arrays
from studies.papers.co_kg import special
from studies.papers.co_kg.special import NUM_AGENTS, NUM_INITIAL
from studies.report import legend, mean_and_error, shown, table

PAPER = {  # final differences and losses in the paper
    "f1": {"co-kg": 0.071, "co-es": 0.075, "co-ei": 0.144},
    "rosenbrock": {"co-kg": 0.046, "co-es": 0.125, "co-ei": 0.131},
    "breast-cancer-mlp": {
        "data-communication": 0.0537, "co-kg": 0.0540, "no-collaboration": 0.0661, "barycenter-qkg": 0.0991,
    },
    "california-mlp": {
        "data-communication": 0.3238, "co-kg": 0.3252, "no-collaboration": 0.3277, "barycenter-qkg": 0.3266,
    },
}  # fmt: skip
PAPER_SECONDS = {10: 2.02, 20: 6.68, 30: 16.20}  # the paper's seconds per round, by mesh
EARLY = 10
AIMS = {
    "f1": 0.02,
    "rosenbrock, log": 0.02,
    "rosenbrock, known noise": 0.12,
}  # expected difference of co-kg at the end
METRICS = {"recommended": "what the server would return", "best": "best configuration tried"}
BASELINE = "no-collaboration"
LOWEST = 1e-4  # smaller differences are drawn here, because a logarithmic axis has no 0
COLOURS = {
    "co-kg": algorithm_style("co-kg").color,
    "co-ei": "#56B4E9", "co-es": "#CC79A7", "barycenter-qkg": "#D55E00",
    "no-collaboration": "#E69F00", "data-communication": "#0072B2", "product": "#000000",
    "random": algorithm_style("random").color,
}  # fmt: skip
_FAR = 2.5  # a framework this many times farther from 0 than all others leaves the panel
DASHED = {"product": "--", "random": ":", "barycenter-qkg": "-."}


def metrics_of(runs: Sequence[Arrays]) -> dict[str, dict[str, Array]]:
    """Return metric -> framework -> curves `(seeds, rounds)`, frameworks in the order of the jobs."""
    found: dict[str, dict[str, Array]] = {metric: {} for metric in METRICS}
    for key in runs[0]:
        name, metric = key.rsplit("/", 1)
        found[metric][name] = np.stack([r[key] for r in runs])
    return found


def framework_table(
    problem: str, runs: Sequence[Arrays], head: Sequence[str], early: int | None = None
) -> str:
    """Return a table of both metrics of every framework, at the end and after `early` rounds.

    Parameters
    ----------
    head : columns after the framework's name; the last is the paper's figure
    """
    metrics = metrics_of(runs)
    rows = []
    for name in metrics["recommended"]:
        row = [name]
        for curves in (metrics[metric] for metric in METRICS):
            row += [] if early is None else [shown(curves[name][:, early])]
            difference = curves[name][:, -1] - curves["co-kg"][:, -1]
            row += [shown(curves[name][:, -1]), "-" if name == "co-kg" else shown(difference, sign="+")]
        rows.append([*row, str(PAPER.get(problem, {}).get(name, "-"))])
    return table(["framework", *head], rows)


def function_table(setting: str, runs: Sequence[Arrays]) -> str:
    """Return a table of both metrics of every framework on a function, early and at the end."""
    last = len(runs[0]["co-kg/best"]) - 1
    early = min(EARLY, last)
    head = [f"returned after {early}", f"after {last}", "minus co-kg"]
    head += [f"best tried after {early}", f"after {last}", "minus co-kg", "paper"]
    title = f"### {setting}, {len(runs)} seeds: difference to the optimum\n\n"
    return title + framework_table(setting, runs, head, early)


def network_table(problem: str, runs: Sequence[Arrays]) -> str:
    """Return a table of the losses of the returned and of the best configuration, beside the paper's."""
    head = ["loss of what is returned", "minus co-kg", "of the best tried", "minus co-kg", "paper"]
    title = f"### {problem}, {len(runs)} seeds: validation loss at the end\n\n"
    return title + framework_table(problem, runs, head)


def acceptance(runs: Mapping[str, Sequence[Arrays]]) -> str:
    """Return which expectations hold for the configuration that the server returns at the end."""
    final = {s: {n: c[:, -1] for n, c in metrics_of(r)["recommended"].items()} for s, r in runs.items()}
    rows = []
    for setting, most in AIMS.items():
        if setting not in final:
            continue
        mine = final[setting]["co-kg"]
        rows.append(
            [f"{setting}, {len(mine)} seeds", f"co-kg <= {most:g}", shown(mine), _holds(mine.mean() <= most)]
        )
    for setting, found in final.items():
        pooled = found["data-communication"] - found["co-kg"]
        rows.append(
            [setting, "data-communication <= co-kg", shown(pooled, sign="+"), _holds(pooled.mean() <= 1e-9)]
        )
    for setting, found in final.items():
        if setting.startswith("rosenbrock"):
            alone = found["barycenter-qkg"] - found["co-kg"]
            rows.append([setting, "barycenter-qkg > co-kg", shown(alone, sign="+"), _holds(alone.mean() > 0)])
    for setting, found in final.items():
        for name in ("product", "product, beta 0"):
            if name in found:
                apart = found[name] - found["data-communication"]
                near = abs(apart.mean()) <= 2 * float(mean_and_error(apart)[1]) + 1e-9
                expected = f"{name} within 2 s.e. of data-communication"
                better = " (better)" if not near and apart.mean() < 0 else ""
                rows.append([setting, expected, shown(apart, sign="+"), _holds(near) + better])
    return table(["problem", "expected", "measured", "holds"], rows)


def time_table(runs: Mapping[int, Arrays]) -> str:
    """Return a table of the server's CPU time per round, and the paper's time divided by it."""
    rows = []
    for mesh, found in runs.items():
        total = 1e3 * (found["ask"] + found["tell"])
        times = [1e3 * found["ask"].mean(), 1e3 * found["tell"].mean(), total.mean(), total.max()]
        ratio = f"{1e3 * PAPER_SECONDS[mesh] / total.mean():.0f}" if mesh in PAPER_SECONDS else "-"
        rows.append([f"{mesh} x {mesh}", int(found["pivots"]), *(f"{t:.1f}" for t in times), ratio])
    head = ["mesh", "pivots", "ask, ms", "tell, ms", "together", "longest round", "paper's time / ours"]
    return table(head, rows)


def odd_table(runs: Sequence[Arrays]) -> str:
    """Return a table of how uniform weights and reliability weights cope with one odd agent of four."""
    rows = []
    for kind in special.KINDS:
        row = [kind]
        for metric, at in (("recommended", -1), ("recommended", None), ("best", None)):
            found = [
                np.array([_at(r[f"{kind}, {weights}/{metric}"], at) for r in runs])
                for weights in special.WEIGHTS
            ]
            row += [*map(shown, found), shown(found[1] - found[0], sign="+")]
        rows.append(row)
    head = ["agent 3"]
    for metric in ("returned at the end", "returned, mean over rounds", "best tried by the others, mean"):
        head += [f"{metric}: uniform", "reliability", "difference"]
    return f"`f1`, {len(runs)} seeds.\n\n" + table(head, rows)


def private_table(runs: Sequence[Arrays]) -> str:
    """Return a table of the attack's error and of the cost in regret for each level of noise."""
    rows = [
        [
            f"{noise:g}",
            *(shown(np.array([r[f"{noise}/{what}"].mean() for r in runs])) for what in ("one", "run")),
            shown(np.array([r[f"{noise}/recommended"] for r in runs])),
            shown(np.array([_at(r[f"{noise}/best"], None) for r in runs])),
            shown(np.array([r[f"{noise}/best"][-1] for r in runs])),
        ]
        for noise in special.NOISE
    ]
    head = ["mean_noise_stddev", "error from two reports", "error from the whole run"]
    head += ["returned at the end", "best tried, mean over rounds", "best tried at the end"]
    return f"`f1`, {len(runs)} seeds. Errors are in standard deviations of an agent's values.\n\n" + table(
        head, rows
    )


def _at(curve: Array, index: int | None) -> float:
    return float(np.nanmean(curve)) if index is None else float(curve[index])


def _holds(true: bool | np.bool_) -> str:
    return "yes" if true else "no"


# -- pictures ----------------------------------------------------------------------------------


def draw(panels: Mapping[str, Mapping[str, Mapping[str, Array]]], path: Path, *, paired: bool) -> None:
    """Draw one column per problem and one row per metric, means with bands of ± 1 s.e.

    Networks differ more by seed than by framework. So they are drawn paired: as the loss that each seed has
    with `BASELINE` minus that of the framework. Differences to an optimum are drawn as they are, on a
    logarithmic axis.

    Parameters
    ----------
    panels : problem -> metric -> framework -> curves `(seeds, rounds)`; frameworks without a colour are not
        drawn
    """
    figure: Any = new_figure(5.0 * len(panels), 7.4)
    axes: Any = figure.subplots(len(METRICS), len(panels), squeeze=False, sharex="col")
    for column, (title, metrics) in enumerate(panels.items()):
        for row, (metric, meaning) in enumerate(METRICS.items()):
            axis = axes[row, column]
            curves = metrics[metric]
            if paired:
                curves = {n: curves[BASELINE] - c for n, c in curves.items() if n != BASELINE}
                axis.axhline(0.0, color="black", linewidth=0.8)
            for name, colour in COLOURS.items():
                if name in curves:
                    _line(axis, curves[name], name, colour, logarithmic=not paired)
            if paired:
                _limit(axis, {name: curves[name] for name in COLOURS if name in curves})
            else:
                axis.set_yscale("log")
                axis.set_ylim(bottom=0.7 * LOWEST)
            axis.spines[["top", "right"]].set_visible(False)
            axis.margins(x=0)
            if row == 0:
                axis.set_title(title, loc="left", fontsize=11)
            if column == 0:
                what = f"loss saved against\n{BASELINE}" if paired else "difference to the optimum"
                axis.set_ylabel(f"{meaning}:\n{what}")
        axes[-1, column].set_xlabel("evaluations of all agents")
    legend(figure, axes.flat[:1], 4)
    save_figure(figure, path, 130)


def _limit(axis: Any, curves: Mapping[str, Array]) -> None:
    """Limit the axis to all frameworks but one if that one alone is far away, and say so."""
    reach = {name: float(np.nanmax(np.abs(c.mean(axis=0)), initial=0.0)) for name, c in curves.items()}
    ranked = sorted(reach, key=reach.__getitem__)
    if len(ranked) < 3 or not 0 < _FAR * reach[ranked[-2]] < reach[ranked[-1]]:
        return
    far, limit = ranked[-1], 1.8 * reach[ranked[-2]]
    axis.set_ylim(-limit, limit)
    note = f"{far} reaches {reach[far]:.2g} and leaves the panel"
    axis.text(0.01, 0.01, note, transform=axis.transAxes, fontsize=8, color="#5f5f5f")


def _line(axis: Any, curves: Array, name: str, colour: str, logarithmic: bool) -> None:
    told = ~np.isnan(curves).any(axis=0)
    evaluations = NUM_AGENTS * (NUM_INITIAL + np.flatnonzero(told))
    mean, error = map(np.nan_to_num, mean_and_error(curves[:, told]))
    lowest = LOWEST if logarithmic else -np.inf
    low, mean, high = (np.maximum(v, lowest) for v in (mean - error, mean, mean + error))
    axis.plot(evaluations, mean, DASHED.get(name, "-"), color=colour, label=name, linewidth=1.7)
    axis.fill_between(evaluations, low, high, color=colour, alpha=0.13, linewidth=0)
