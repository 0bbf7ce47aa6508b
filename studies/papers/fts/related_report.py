"""Write the tables and pictures of `fts.related`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fbo_flower.numerics.arrays import Array
from fbo_flower.reports.pictures import new_figure, save_figure
from studies.jobs import load_job
from studies.papers import compare
from studies.papers.tables import table, write_results

NUM_AGENTS = 12
NUM_RELATED = 6  # agents 0-5
TARGETS = (0, 1, 10, 11)  # of the part in which the others hold observations
CHECKPOINTS = (3, 5, 10, 20, 50)
PARTS = {"prior": "others hold 30 observations", "nothing": "all from nothing"}


def job_name(part: str, variant: str, number: int) -> str:
    """Return the name of a job."""
    return f"{part}-{variant.replace(' ', '_')}-{number}"


def report(
    directory: Path,
    count: int,
    num_landmine: int,
    last: int,
    variants: Sequence[str],
    on_landmine: Sequence[str],
) -> list[Path]:
    """Write `results.md`, `related.png` and `preferences.png` from the finished jobs.

    Parameters
    ----------
    count, num_landmine : number of finished sets of functions and landmine runs
    last : number of iterations
    """
    checkpoints = [t for t in CHECKPOINTS if t <= last]
    text = [
        f"{count} sets of functions. Values are minus simple regret without noise: 0 is the optimum; s.e. "
        'over the sets. "clearly worse": agents whose paired mean over the sets is below 0 by 2 s.e.\n'
    ]
    panels: dict[str, dict[str, Array]] = {}
    for part, title in PARTS.items():
        who = TARGETS if part == "prior" else tuple(range(NUM_AGENTS))
        for related in (True, False):
            rows = [i for i, agent in enumerate(who) if (agent < NUM_RELATED) == related]
            panel = {v: -stack(directory, part, v, count, "regret")[:, rows] for v in variants}
            kind = "related" if related else "unrelated"
            text.append(f"## {title[0].upper()}{title[1:]}: the {kind} agents\n")
            text.append(regrets(panel, checkpoints))
            panels[f"{kind}, {title}"] = {v: np.swapaxes(c, 0, 1) for v, c in panel.items()}
    landmine = {v: stack(directory, "landmine", v, num_landmine, "curves") for v in on_landmine}
    text.append(f"## Landmine, all {landmine['ts'].shape[1]} fields from nothing, {num_landmine} runs\n")
    shown = [t for t in compare.CHECKPOINTS if t <= last]
    text.append(compare.markdown_table(landmine, {}, checkpoints=shown))
    matrices = stack(directory, "nothing", "fts learned", count, "preferences")
    text.append(shares(matrices))
    results = write_results(directory, text)
    pictures = [directory / "related.png", directory / "preferences.png"]
    compare.draw(panels, {}, pictures[0], ylabel="gain in simple regret over ts")
    fields = load_job(directory, job_name("landmine", "fts learned", 0))["preferences"]
    draw_preferences(matrices.mean(axis=0), fields, pictures[1])
    return [results, *pictures]


def stack(directory: Path, part: str, variant: str, count: int, key: str) -> Array:
    """Return one array of all sets of functions, stacked as `(sets, ...)`."""
    return np.stack([load_job(directory, job_name(part, variant, i))[key] for i in range(count)])


def regrets(panel: Mapping[str, Array], checkpoints: Sequence[int]) -> str:
    """Return means, paired differences to `ts` and the share of agents clearly worse, as Markdown.

    Parameters
    ----------
    panel : variant -> `(sets, agents, T + 1)`
    """
    last = checkpoints[-1]
    head = ["variant", *(f"at {t}" for t in checkpoints), *(f"minus ts at {t}" for t in checkpoints)]
    head.append(f"clearly worse at {checkpoints[1]}, {last}")
    rows = []
    for name, curves in panel.items():
        mine, alone = (np.swapaxes(c, 0, 1) for c in (curves, panel["ts"]))  # the sets are the clusters
        row = [name, *(f"{mine[:, :, t].mean():.4f}" for t in checkpoints)]
        if name == "ts":
            row += ["-"] * (len(checkpoints) + 1)
        else:
            row += [str(compare.gain(mine, alone, t)) for t in checkpoints]
            worse = [compare.clearly_worse(curves, panel["ts"], t) for t in (checkpoints[1], last)]
            row.append(", ".join(f"{100 * w:.0f} %" for w in worse))
        rows.append(row)
    return table(head, rows)


def shares(matrices: Array) -> str:
    """Return a line with the share of the related agents' `P_N` that goes to related agents."""
    to_related = matrices[:, :NUM_RELATED, :NUM_RELATED].sum(axis=2).mean(axis=1)
    mean, stderr = to_related.mean(), to_related.std(ddof=1) / np.sqrt(len(to_related))
    uniform = (NUM_RELATED - 1) / (NUM_AGENTS - 1)
    return (
        f"Learned `P_N` of a related agent after the last iteration gives {mean:.3f} ± {stderr:.3f} to the "
        f"other related agents; uniform would be {uniform:.3f}.\n"
    )


def draw_preferences(functions: Array, fields: Array, path: Path) -> None:
    """Draw `P_N`, a row per target, on the functions (mean over the sets) and on landmine (one run)."""
    figure: Any = new_figure(11, 5.0)
    axes: Any = figure.subplots(1, 2)
    titles = ("functions: 0-5 are related, 6-11 not", "landmine: fields 0-14 and 15-28 lie on two terrains")
    for axis, matrix, title in zip(axes, (functions, fields), titles, strict=True):
        image = axis.imshow(matrix, cmap="viridis", vmin=0)
        axis.set_title(f"Learned preferences P_N\n{title}", loc="left", fontsize=10)
        axis.set_xlabel("whose message")
        axis.set_ylabel("target")
        figure.colorbar(image, ax=axis, shrink=0.8, label="probability that the target uses the message")
    axes[0].axhline(NUM_RELATED - 0.5, color="white", linewidth=1)
    axes[0].axvline(NUM_RELATED - 0.5, color="white", linewidth=1)
    if len(fields) > 15:
        axes[1].axhline(14.5, color="white", linewidth=1)
        axes[1].axvline(14.5, color="white", linewidth=1)
    save_figure(figure, path, 120)
