"""Write the tables of the replays of RFMS as Markdown; every standard error is over tables.

The replications and lockboxes of a table share its losses, so they count as one mean. Tables with the same
seed share rows, which the standard errors ignore.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fbo_flower.numerics.acquisition.hypervolume import non_dominated
from fbo_flower.numerics.arrays import Array
from fbo_flower.reports.pictures import new_figure, save_figure
from fbo_flower.reports.selection import PROTOCOLS, win_matrix
from studies.jobs import Arrays
from studies.papers.rfms.outcomes import CHOICES, HINDSIGHT, OWN, Outcomes
from studies.papers.rfms.replay import METHODS, Indices, ReplaySetting
from studies.papers.rfms.tables import Key
from studies.report import Estimate, clustered, legend, mean_and_error, table, write_results

NAMES = tuple(METHODS)
COMPARED = ("fmo", "ehvi", "rand_mo")  # methods that choose by the mean of both losses
EXAMPLES = ("lso", "rand_mo", "fmo")  # drawn
SHOWN = ("mean", "max", "guarded max")  # criteria shown with and without a class weight


def write(
    path: Path, everything: Sequence[Outcomes], draws: Mapping[str, Arrays], weighted: Iterable[Key]
) -> Path:
    """Write all tables, with forests apart; see `class_weight` for `draws` and `weighted`."""
    forests = [o for o in everything if is_forest(o.key)]
    plain = [o for o in everything if not is_forest(o.key)]
    parts = [
        counted(plain),
        "## Dominated volume\n",
        volumes(plain),
        "## Wins\n",
        *(wins(plain, i) for i in range(len(PROTOCOLS))),
        "## Loss of the shipped configuration at the lockbox, by openbox\n",
        by_openbox(plain),
        "## Criteria\n",
        "Methods " + ", ".join(COMPARED) + " pooled; differences to `mean`.\n",
        criteria(plain),
        "## Chosen honestly\n",
        honest(plain),
        "## A weight of the positive class among the parameters\n",
        "Random search; differences to the choice by `mean` without the weight.\n",
        class_weight(draws, weighted),
        "`guarded max` with the weight, minus `mean` without it, elastic net:\n",
        guarded_by_seed(draws, weighted),
    ]
    if forests:
        parts += [
            "## Forests\n",
            counted(forests),
            volumes(forests),
            *(wins(forests, i) for i in range(len(PROTOCOLS))),
            by_openbox(forests),
        ]
    return write_results(path, parts)


def is_forest(key: Key) -> bool:
    """Return whether a table is of random forests."""
    return key.options.get("learner") == "forest"


def counted(outcomes: Sequence[Outcomes]) -> str:
    """Return a line that counts replications and tables."""
    count = sum(o.volumes.shape[0] * o.volumes.shape[1] for o in outcomes)
    return (
        f"{count} replications per method on {len(outcomes)} tables; means ± standard errors over tables.\n"
    )


Value = Callable[[Outcomes], Array]


def pick(field: str, methods: int | Sequence[int], column: int) -> Value:
    """Return a function that takes a method's values, `(L, R)` or `(L, R, k)`, from `field` of outcomes."""
    return lambda outcomes: np.asarray(getattr(outcomes, field)[..., methods, column])


def estimate(outcomes: Iterable[Outcomes], value: Value, minus: Value | None = None) -> Estimate:
    """Return the mean and standard error over tables of a value, or of a paired difference."""
    means = [(value(o) - (minus(o) if minus else 0.0)).mean() for o in outcomes]
    return clustered(np.array([means]))


def source(key: Key) -> str:
    """Return the source of a table's rows: data set and split."""
    return " ".join(
        [key.problem.rsplit("-", 1)[0], *([key.options["split"]] if "split" in key.options else [])]
    )


def sources(outcomes: Iterable[Outcomes]) -> dict[str, list[Outcomes]]:
    """Return the outcomes grouped by data set and split."""
    found: dict[str, list[Outcomes]] = {}
    for o in outcomes:
        found.setdefault(source(o.key), []).append(o)
    return found


def volumes(outcomes: Sequence[Outcomes]) -> str:
    """Return a table of mean volumes by protocol, and by data set under the paper's protocol."""
    groups = sources(outcomes)
    head = ["method", "paper", "paper - lso", "fair", "fair - lso", *(f"paper: {name}" for name in groups)]
    rows = []
    for m, name in enumerate(NAMES):
        row = [name]
        for p in range(len(PROTOCOLS)):
            mine, lso = pick("volumes", m, p), pick("volumes", NAMES.index("lso"), p)
            row.append(f"{estimate(outcomes, mine).mean:.4f}")
            row.append("-" if name == "lso" else str(estimate(outcomes, mine, lso)))
        row += [f"{estimate(group, pick('volumes', m, 0)).mean:.3f}" for group in groups.values()]
        rows.append(row)
    return table(head, rows)


def win_shares(outcomes: Sequence[Outcomes], protocol: int) -> tuple[Array, Array]:
    """Return the win matrix `(M, M)` and its standard errors over tables."""
    flat = [o.volumes[..., protocol].reshape(-1, len(NAMES)) for o in outcomes]
    return win_matrix(np.concatenate(flat)), mean_and_error(np.stack([win_matrix(v) for v in flat]))[1]


def wins(outcomes: Sequence[Outcomes], protocol: int) -> str:
    """Return a table of how often the row's method has a larger volume than the column's."""
    share, stderr = win_shares(outcomes, protocol)
    rows = [
        [name, *("-" if i == j else f"{share[i, j]:.2f} ± {stderr[i, j]:.2f}" for j in range(len(NAMES)))]
        for i, name in enumerate(NAMES)
    ]
    return table([f"{PROTOCOLS[protocol]} protocol", *NAMES], rows)


def by_openbox(outcomes: Sequence[Outcomes]) -> str:
    """Return a table of the loss that every method ships by its own criterion, a row per openbox."""
    groups: dict[str, list[Outcomes]] = {}
    for o in outcomes:
        groups.setdefault(f"{source(o.key)}, {o.key.openbox}", []).append(o)
    own, hindsight = CHOICES.index(OWN), CHOICES.index(HINDSIGHT)
    rows = []
    for name, group in [*sorted(groups.items()), ("all", list(outcomes))]:
        found = [estimate(group, pick("losses", m, own)) for m in range(len(NAMES))]
        best = estimate(group, pick("losses", COMPARED_INDEX, hindsight))
        rows.append([name, str(len(group)), *(_plain(e) for e in found), f"{best.mean:.3f}"])
    return table(["openbox", "tables", *NAMES, HINDSIGHT], rows)


def criteria(outcomes: Sequence[Outcomes]) -> str:
    """Return tables of losses by criterion: development (seed 0), confirmation (others), by data set."""
    groups = sources(outcomes)
    parts = {
        "seed 0": [o for o in outcomes if o.key.seed == 0],
        "other seeds": [o for o in outcomes if o.key.seed],
    }
    parts = {name: part for name, part in parts.items() if part}
    head = ["criterion", "all", "difference"]
    head += [f"difference, {name}" for name in parts] + list(groups)
    mean = pick("losses", COMPARED_INDEX, CHOICES.index("mean"))
    rows = []
    for c, name in enumerate(CHOICES):
        if name == OWN:
            continue
        loss = pick("losses", COMPARED_INDEX, c)
        row = [name, f"{estimate(outcomes, loss).mean:.4f}"]
        for part in (outcomes, *parts.values()):
            row.append("-" if name == "mean" else str(estimate(part, loss, mean)))
        rows.append([*row, *(f"{estimate(group, loss).mean:.3f}" for group in groups.values())])
    return table(head, rows)


def honest(outcomes: Sequence[Outcomes]) -> str:
    """Return a table of the possible gain: choose by 4/5 of the lockbox's rows, measure on the rest."""
    rows = []
    for name, group in [*sources(outcomes).items(), ("all", list(outcomes))]:
        by_mean, by_lockbox = (pick("honest", COMPARED_INDEX, i) for i in (0, 1))
        chosen = [estimate(group, value).mean for value in (by_mean, by_lockbox)]
        gain = estimate(group, by_lockbox, by_mean)
        rows.append([name, *(f"{loss:.3f}" for loss in chosen), str(gain)])
    return table(["lockbox's outbag", "chosen by the mean", "by the lockbox's inbag", "difference"], rows)


def class_weight(draws: Mapping[str, Arrays], weighted: Iterable[Key]) -> str:
    """Return a table of the loss that random search ships with and without the weight, paired by table.

    Parameters
    ----------
    draws : table name -> result of `rfms.outcomes.draw`
    weighted : the tables with the weight; a table is left out if it or its partner is missing in `draws`
    """
    groups: dict[str, list[Pair]] = {}
    for key, pair in _pairs(draws, weighted):
        title = f"{source(key)}, {key.options['learner']}, seed {key.seed}"
        groups.setdefault(title, []).append(pair)
    groups |= {"all": [pair for group in groups.values() for pair in group]}
    rows = []
    for name, group in groups.items():
        for choice in (*SHOWN, HINDSIGHT) if group else ():
            new, old, base = (_shipped(group, *which) for which in ((0, choice), (1, choice), (1, "mean")))
            losses = [f"{old.mean():.3f}", f"{new.mean():.3f}"]
            gains = [str(clustered(d[None])) for d in (old - base, new - base)]
            rows.append([name, str(len(group)), choice, *losses, *gains])
    head = ["data", "tables", "criterion", "without", "with"]
    return table([*head, "without, minus `mean`", "with, minus `mean` without"], rows)


def guarded_by_seed(draws: Mapping[str, Arrays], weighted: Iterable[Key]) -> str:
    """Return a table of the gain of weight and guard together, by data set and seed."""
    found = [(key, pair) for key, pair in _pairs(draws, weighted) if key.options["learner"] == "elastic-net"]
    seeds = {
        "0": [0],
        "1": [1],
        "2 and more, on which nothing was chosen": [s for s in {key.seed for key, _ in found} if s > 1],
        "all": list({key.seed for key, _ in found}),
    }
    names = list(dict.fromkeys(source(key) for key, _ in found))
    rows = []
    for title, wanted in seeds.items():
        row = [title]
        for name in (*names, None):
            group = [p for key, p in found if key.seed in wanted and name in (None, source(key))]
            gain = _shipped(group, 0, "guarded max") - _shipped(group, 1, "mean")
            row += [str(clustered(gain[None])) if group else "-"] + [str(len(group))] * (name is None)
        rows.append(row)
    return table(["seeds", *names, "all", "tables"], rows)


Pair = tuple[Arrays, Arrays]  # the draws of a table with the weight, and of its partner without


def _pairs(draws: Mapping[str, Arrays], weighted: Iterable[Key]) -> list[tuple[Key, Pair]]:
    names = [(key, str(key), str(unweighted(key))) for key in weighted]
    return [(key, (draws[a], draws[b])) for key, a, b in names if a in draws and b in draws]


def _shipped(pairs: Sequence[Pair], which: int, choice: str) -> Array:
    """Return the mean loss of a choice on every table, `(T,)`, with the weight (0) or without it (1)."""
    return np.array([pair[which]["losses"][..., CHOICES.index(choice)].mean() for pair in pairs])


def unweighted(key: Key) -> Key:
    """Return the table of the same rows without a class weight."""
    return replace(key, options={k: v for k, v in key.options.items() if k != "class_weight"})


def _plain(found: Estimate) -> str:
    return f"{found.mean:.3f}" if np.isnan(found.stderr) else f"{found.mean:.3f} ± {found.stderr:.3f}"


COMPARED_INDEX = [NAMES.index(name) for name in COMPARED]


# -- pictures ----------------------------------------------------------------------------------


def draw_wins(path: Path, outcomes: Sequence[Outcomes]) -> Path:
    """Draw both protocols' win matrices: how often the row's method has the larger volume."""
    figure: Any = new_figure(9.6, 4.6)
    axes: Any = figure.subplots(1, len(PROTOCOLS), sharey=True)
    for protocol, axis in enumerate(axes):
        share, _ = win_shares(outcomes, protocol)
        image = axis.imshow(share, vmin=0, vmax=1, cmap="RdBu")
        axis.set_xticks(range(len(NAMES)), NAMES, rotation=45, ha="right", rotation_mode="anchor")
        axis.set_yticks(range(len(NAMES)), NAMES)
        axis.set_title(f"{PROTOCOLS[protocol]} protocol", loc="left", fontsize=11)
        for (i, j), value in np.ndenumerate(share):
            if np.isfinite(value):
                colour = "white" if abs(value - 0.5) > 0.3 else "black"
                axis.text(j, i, f"{value:.2f}", ha="center", va="center", fontsize=8, color=colour)
        axis.tick_params(length=0)
        axis.spines[:].set_visible(False)
    axes[0].set_ylabel("method of the row")
    figure.colorbar(
        image,
        ax=list(axes),
        label="share of replications in which the row\nhas the larger volume, ties count half",
        shrink=0.8,
    )
    return save_figure(figure, path)


def draw_front(path: Path, setting: ReplaySetting, key: Key, chosen: Indices) -> Path:
    """Draw the front of the table in `(J_l, J_r)`, and what three methods evaluated near it.

    Parameters
    ----------
    chosen : `(M, num_trials)`, evaluated configurations by method
    """
    losses = _losses(setting)
    known = np.flatnonzero(np.isfinite(losses).all(axis=1))
    edge = table_front(setting)
    span = np.maximum(np.ptp(edge, axis=0), 0.02)
    figure: Any = new_figure(4.2 * len(EXAMPLES), 3.9)
    axes: Any = figure.subplots(1, len(EXAMPLES), sharex=True, sharey=True)
    for axis, name in zip(axes, EXAMPLES, strict=True):
        taken = chosen[NAMES.index(name)]
        taken = taken[np.isin(taken, known)]
        known_front = {
            "color": "#999999",
            "linestyle": "--",
            "label": "front of all tabulated configurations",
        }
        _stairs(axis, losses[known], **known_front)
        axis.scatter(
            *losses[taken].T, s=16, color="#56B4E9", alpha=0.7, label="configurations evaluated in the run"
        )
        _stairs(axis, losses[taken], color="#D55E00", label="front of the run")
        best = losses[taken]
        best = best[non_dominated(-best)]
        axis.scatter(*best.T, s=26, color="#D55E00", zorder=3)
        axis.set_title(name, loc="left", fontsize=11)
        axis.set_xlabel("J_l: cross-validated loss at the\nopenbox, the site that trains")
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_xlim(edge[:, 0].min() - 0.1 * span[0], edge[:, 0].max() + 0.4 * span[0])
    axes[0].set_ylim(edge[:, 1].min() - 0.1 * span[1], edge[:, 1].max() + 0.4 * span[1])
    axes[0].set_ylabel("J_r: mean loss at the curators,\nthe sites that judge")
    legend(figure, axes[:1], 3)
    options = ", ".join(str(value) for value in key.options.values())
    sites = f"site {setting.openbox} trains (openbox), site {setting.lockbox} is held out (lockbox)"
    title = f"{key.problem}, {options}, seed {key.seed}: {sites}"
    figure.suptitle(title, fontsize=11, x=0.01, ha="left")
    return save_figure(figure, path)


def table_front(setting: ReplaySetting) -> Array:
    """Return the losses `(k, 2)` that no configuration of the table dominates."""
    losses = _losses(setting)
    losses = losses[np.isfinite(losses).all(axis=1)]
    return losses[non_dominated(-losses)]


def _losses(setting: ReplaySetting) -> Array:
    return np.column_stack([setting.table.local, setting.table.remote(setting.curators)])


def _stairs(axis: Any, losses: Any, **style: Any) -> None:
    best = losses[non_dominated(-losses)]
    best = best[np.argsort(best[:, 0])]
    axis.step(best[:, 0], best[:, 1], where="post", linewidth=1.4, **style)
