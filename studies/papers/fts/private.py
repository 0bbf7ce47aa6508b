"""Measure what differential privacy costs on landmine detection: DP-FTS-DE at several noise levels.

All 29 fields tune at once without earlier observations. The control has so much noise that its sums contain
nothing of the agents' messages: what it gains comes from exploration and not from federation.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fbo_flower.numerics.arrays import Array
from fbo_flower.reports.pictures import algorithm_style, new_figure, save_figure
from studies import runs
from studies.jobs import Arrays, Directory, Job, OnJob, job, load, open_directory, run_jobs
from studies.papers import compare
from studies.papers.fts.landmine import NUM_FIELDS, NUM_INITIAL, curves_of, tune
from studies.report import Estimate, clustered, table, write_results

CONTROL = 1e6  # noise multiplier at which the messages are lost in noise
NOISES = (0.0, 1.0, 2.0, 4.0, 8.0, CONTROL)
_OURS: Mapping[str, Any] = {"num_regions": 4, "sampling_rate": 1.0}
_DRAWS: Mapping[str, Any] = {
    "num_regions": 4, "sampling_rate": 0.35, "message": "draw", "message_noise_variance": 1e-2,
    "num_features": 100, "clip": 11.0,
}  # fmt: skip
CHECKPOINTS = (1, 2, 5, 10, 20)


def noisy(name: str, noise: float) -> str:
    """Return the name of a variant."""
    return (
        f"{name} no noise" if noise == 0 else f"{name} control" if noise == CONTROL else f"{name} z={noise:g}"
    )


VARIANTS: dict[str, tuple[str, Mapping[str, Any]]] = {
    "ts": ("ts", {}),
    "fts": ("fts", {}),
    **{noisy("dp-fts", z): ("dp-fts", {**_OURS, "noise_multiplier": z}) for z in NOISES},
    **{noisy("draws", z): ("dp-fts", {**_DRAWS, "noise_multiplier": z}) for z in (0.0, 1.0, CONTROL)},
    "local z=2": ("dp-fts", {**_OURS, "noise": "local", "noise_multiplier": 2.0}),
}


def run(directory: Directory, quick: bool, num_workers: int, on_job: OnJob) -> list[Path]:
    """Run the jobs without a result, write `results.md` and a picture, and return these files.

    Parameters
    ----------
    quick : True: 1 seed, 6 fields and 5 iterations; False: 6, 29 and 20
    """
    size = (1, 5, 6) if quick else (6, 20, NUM_FIELDS)
    names = ("num_seeds", "num_iterations", "num_fields")
    path = open_directory(directory, {"experiment": "dp-fts", **dict(zip(names, size, strict=True))})
    run_jobs(jobs(*size), path, num_workers, on_job, "variants")
    return report(path, *size)


def jobs(num_seeds: int, num_iterations: int, num_fields: int) -> list[Job]:
    """Return one job per variant and seed."""
    common = {"num_iterations": num_iterations, "num_fields": num_fields}
    return [job(run_variant, v, seed, **common) for seed in range(num_seeds) for v in VARIANTS]


def run_variant(variant: str, seed: int, num_iterations: int, num_fields: int) -> Arrays:
    """Run one variant; return best values `(fields, iterations + 1)`, bytes per field, and epsilon."""
    algorithm, options = VARIANTS[variant]
    study = tune(algorithm, options, "linear", 30_000 + seed, num_iterations, num_fields)
    spent = study.settings["runs"][0].get("privacy", {}).get("epsilon")
    return {
        "curves": curves_of(study),
        "bytes": runs.traffic(study),
        "epsilon": np.array([np.nan if spent is None else spent]),
    }


def report(directory: Path, num_seeds: int, num_iterations: int, num_fields: int) -> list[Path]:
    """Write the table and the picture from the finished jobs."""
    found = {v: [load(directory, run_variant, v, seed) for seed in range(num_seeds)] for v in VARIANTS}
    curves = {v: np.stack([result["curves"] for result in each]) for v, each in found.items()}
    epsilons = {v: float(each[0]["epsilon"][0]) for v, each in found.items()}
    checkpoints = [t for t in CHECKPOINTS if t <= num_iterations]
    about = (
        f"{num_fields} fields at once, linear scale, {num_seeds} seeds, {num_iterations} "
        f"iterations after {NUM_INITIAL} starting points; AUC. Differences are paired by field and seed, ± "
        "s.e. over fields.\n"
    )
    head = ["variant", "epsilon (delta 1e-3)", *(f"gain over ts at {t}" for t in checkpoints)]
    head += ["over its control, mean of all iterations", "KB down, up per field"]
    rows = []
    for name, mine in curves.items():
        gains = [str(compare.gain(mine, curves["ts"], t)) if name != "ts" else "-" for t in checkpoints]
        control = _control(name)
        over = "-" if control is None else str(_average_gain(mine, curves[control]))
        down, up = np.mean([result["bytes"] for result in found[name]], axis=0) / 1000
        rows.append([name, _epsilon(name, epsilons[name]), *gains, over, f"{down:.0f}, {up:.0f}"])
    picture = directory / "privacy-utility.png"
    draw(curves, epsilons, picture)
    return [write_results(directory, [about, table(head, rows)]), picture]


def _control(name: str) -> str | None:
    """Return the control of a variant, which differs in the agents' messages only."""
    for prefix in ("dp-fts", "draws"):
        if name.startswith(prefix) and not name.endswith("control"):
            return noisy(prefix, CONTROL)
    return noisy("dp-fts", CONTROL) if name == "local z=2" else None


def _average_gain(curves: Array, baseline: Array) -> Estimate:
    """Return the paired difference, averaged over the iterations after the starting points."""
    return clustered((curves - baseline)[:, :, 1:].mean(axis=2))


def _epsilon(name: str, epsilon: float) -> str:
    if name.endswith("control"):
        return "0"
    return f"{epsilon:.2f}" if np.isfinite(epsilon) else "no bound"


def draw(curves: Mapping[str, Array], epsilons: Mapping[str, float], path: Path) -> None:
    """Draw the mean gain over the iterations against epsilon, and lines for FTS and the control."""
    from matplotlib.ticker import FixedLocator, NullLocator

    figure: Any = new_figure(8.4, 4.2)
    axis: Any = figure.subplots()
    for prefix, text, colour in (
        ("dp-fts", "dp-fts: noise on the sum", algorithm_style("dp-fts").color),
        ("draws", "draws: noisy draws of the model, summed", "#D55E00"),
        ("local", "local: every agent adds the noise", "#009E73"),
    ):
        points = [
            (epsilons[v], _average_gain(curves[v], curves["ts"]))
            for v in curves
            if v.startswith(prefix) and not v.endswith("control") and np.isfinite(epsilons[v])
        ]
        x, means, errors = (
            [*column] for column in zip(*((e, g.mean, g.stderr) for e, g in points), strict=True)
        )
        axis.errorbar(x, means, errors, fmt="o-", color=colour, label=text, capsize=3)
    for name, text, style in (
        ("fts", "fts, no privacy", "-"),
        ("dp-fts no noise", "dp-fts without noise", "--"),
        ("dp-fts control", "control: nothing but noise", ":"),
    ):
        gained = _average_gain(curves[name], curves["ts"])
        axis.axhline(gained.mean, color="#555555", linestyle=style, linewidth=1.2, label=text)
    axis.axhline(0.0, color="black", linewidth=0.8)
    axis.set_xscale("log")
    axis.xaxis.set_major_locator(FixedLocator([m * 10.0**k for k in range(-3, 4) for m in (1, 2, 5)]))
    axis.xaxis.set_minor_locator(NullLocator())  # its labels would collide
    axis.xaxis.set_major_formatter("{x:g}")
    axis.set_xlabel("epsilon, at delta = 1e-3 (smaller: more private)")
    axis.set_ylabel("gain in best AUC over ts,\nmean over iterations")
    axis.spines[["top", "right"]].set_visible(False)
    figure.legend(*axis.get_legend_handles_labels(), loc="outside right upper", frameon=False, fontsize=9)
    save_figure(figure, path)
