"""Write the tables of the Co-KG experiment. Curves are `(seeds, rounds)`, in order of the seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fbo_flower.numerics.arrays import Array
from studies.jobs import Arrays
from studies.papers.co_kg import draw as cokg_draw
from studies.papers.co_kg import odd_agents as cokg_odd
from studies.papers.co_kg import server as cokg_server
from studies.papers.co_kg import work
from studies.papers.co_kg.runs import MESH, NUM_AGENTS
from studies.papers.co_kg.work import Size
from studies.papers.tables import table

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


def spread(values: Array, signed: bool = False) -> str:
    """Return the mean and standard error over seeds as text."""
    mean = f"{values.mean():+.4f}" if signed else f"{values.mean():.4f}"
    return mean if len(values) < 2 else f"{mean} ± {_stderr(values):.4f}"


def function_table(setting: str, runs: Sequence[Arrays]) -> str:
    """Return a table of both metrics of every framework on a function, early and at the end."""
    metrics = metrics_of(runs)
    recommended, best = metrics["recommended"], metrics["best"]
    last = recommended["co-kg"].shape[1] - 1
    early = min(EARLY, last)
    rows = [
        [
            name,
            spread(curves[:, early]),
            spread(curves[:, last]),
            "-" if name == "co-kg" else spread(curves[:, last] - recommended["co-kg"][:, last], signed=True),
            spread(best[name][:, early]),
            spread(best[name][:, last]),
            "-" if name == "co-kg" else spread(best[name][:, last] - best["co-kg"][:, last], signed=True),
            str(PAPER.get(setting, {}).get(name, "-")),
        ]
        for name, curves in recommended.items()
    ]
    head = ["framework", f"returned after {early}", f"after {last}", "minus co-kg"]
    head += [f"best tried after {early}", f"after {last}", "minus co-kg", "paper"]
    return f"### {setting}, {len(runs)} seeds: difference to the optimum\n\n" + table(head, rows)


def acceptance(runs: Mapping[str, Sequence[Arrays]]) -> str:
    """Return which expectations hold for the configuration that the server returns at the end."""
    final = {s: {n: c[:, -1] for n, c in metrics_of(r)["recommended"].items()} for s, r in runs.items()}
    rows = []
    for setting, most in AIMS.items():
        if setting not in final:
            continue
        mine = final[setting]["co-kg"]
        rows.append(
            [f"{setting}, {len(mine)} seeds", f"co-kg <= {most:g}", spread(mine), _holds(mine.mean() <= most)]
        )
    for setting, found in final.items():
        pooled = found["data-communication"] - found["co-kg"]
        rows.append(
            [setting, "data-communication <= co-kg", spread(pooled, True), _holds(pooled.mean() <= 1e-9)]
        )
    for setting, found in final.items():
        if setting.startswith("rosenbrock"):
            alone = found["barycenter-qkg"] - found["co-kg"]
            rows.append([setting, "barycenter-qkg > co-kg", spread(alone, True), _holds(alone.mean() > 0)])
    for setting, found in final.items():
        for name in ("product", "product, beta 0"):
            if name in found:
                apart = found[name] - found["data-communication"]
                near = abs(apart.mean()) <= 2 * _stderr(apart) + 1e-9
                expected = f"{name} within 2 s.e. of data-communication"
                better = " (better)" if not near and apart.mean() < 0 else ""
                rows.append([setting, expected, spread(apart, True), _holds(near) + better])
    return table(["problem", "expected", "measured", "holds"], rows)


def swept_table(setting: str, usual: Sequence[Arrays], runs: Sequence[Arrays], size: Size) -> str:
    """Return a table of both metrics at the end under other settings.

    Parameters
    ----------
    usual : runs of the usual setting; those with the same seeds are compared
    """
    swept = metrics_of(runs)
    same = {m: {n: c[: len(runs)] for n, c in found.items()} for m, found in metrics_of(usual).items()}
    rows = []

    def row(varied: str, framework: str, label: str, metrics: Mapping[str, Mapping[str, Array]]) -> None:
        finals = [spread(metrics[m][label][:, -1]) for m in ("recommended", "best")]
        rows.append([varied, framework, *finals])

    row("beta log(2t + 1)", "co-kg", "co-kg", same)
    for beta, name in (("constant", "beta 1"), ("exp", "beta exp(-t/2)")):
        row(name, "co-kg", work.swept_label("co-kg", "beta", beta), swept)
    for what, values, default in (("mesh", size.meshes, MESH), ("N", size.agents, NUM_AGENTS)):
        for value in sorted({*values, default}):
            for name in work.SWEPT_FRAMEWORKS:
                known = value == default
                label = name if known else work.swept_label(name, what, value)
                row(f"{what} {value}", name, label, same if known else swept)
    head = ["setting", "framework", "returned", "best tried"]
    return f"### {setting}, {len(runs)} seeds, at the end\n\n" + table(head, rows)


def network_table(problem: str, runs: Sequence[Arrays]) -> str:
    """Return a table of the losses of the returned and of the best configuration, beside the paper's."""
    metrics = metrics_of(runs)
    recommended, best = metrics["recommended"], metrics["best"]
    rows = [
        [
            name,
            spread(curves[:, -1]),
            "-" if name == "co-kg" else spread(curves[:, -1] - recommended["co-kg"][:, -1], signed=True),
            spread(best[name][:, -1]),
            "-" if name == "co-kg" else spread(best[name][:, -1] - best["co-kg"][:, -1], signed=True),
            str(PAPER[problem].get(name, "-")),
        ]
        for name, curves in recommended.items()
    ]
    head = [
        "framework",
        "loss of what is returned",
        "minus co-kg",
        "of the best tried",
        "minus co-kg",
        "paper",
    ]
    return f"### {problem}, {len(runs)} seeds: validation loss at the end\n\n" + table(head, rows)


def time_table(runs: Mapping[int, Arrays]) -> str:
    """Return a table of the server's CPU time per round, and the paper's time divided by it."""
    rows = []
    for mesh, found in runs.items():
        total = 1e3 * (found["ask"] + found["tell"])
        paper = PAPER_SECONDS.get(mesh)
        rows.append(
            [
                f"{mesh} x {mesh}",
                f"{int(found['pivots'])}",
                f"{1e3 * found['ask'].mean():.1f}",
                f"{1e3 * found['tell'].mean():.1f}",
                f"{total.mean():.1f}",
                f"{total.max():.1f}",
                "-" if paper is None else f"{1e3 * paper / total.mean():.0f}",
            ]
        )
    head = ["mesh", "pivots", "ask, ms", "tell, ms", "together", "longest round", "paper's time / ours"]
    return table(head, rows)


def odd_table(runs: Sequence[Arrays]) -> str:
    """Return a table of how uniform weights and reliability weights cope with one odd agent of four."""
    rows = []
    for kind in cokg_odd.KINDS:
        row = [kind]
        for metric, at in (("recommended", -1), ("recommended", None), ("best", None)):
            found = [
                np.array([_at(r[f"{kind}, {weights}/{metric}"], at) for r in runs])
                for weights in cokg_odd.WEIGHTS
            ]
            row += [*map(spread, found), spread(found[1] - found[0], signed=True)]
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
            *(spread(np.array([r[f"{noise}/{what}"].mean() for r in runs])) for what in ("one", "run")),
            spread(np.array([r[f"{noise}/recommended"] for r in runs])),
            spread(np.array([_at(r[f"{noise}/best"], None) for r in runs])),
            spread(np.array([r[f"{noise}/best"][-1] for r in runs])),
        ]
        for noise in cokg_server.NOISE
    ]
    head = ["mean_noise_stddev", "error from two reports", "error from the whole run"]
    head += ["returned at the end", "best tried, mean over rounds", "best tried at the end"]
    return f"`f1`, {len(runs)} seeds. Errors are in standard deviations of an agent's values.\n\n" + table(
        head, rows
    )


def metrics_of(runs: Sequence[Arrays]) -> dict[str, dict[str, Array]]:
    """Return metric -> framework -> curves `(seeds, rounds)`, frameworks in the order of the jobs."""
    names = [key.rsplit("/", 1) for key in runs[0]]
    found: dict[str, dict[str, Array]] = {metric: {} for metric in cokg_draw.METRICS}
    for name, metric in names:
        found[metric][name] = np.stack([r[f"{name}/{metric}"] for r in runs])
    return found


def _at(curve: Array, index: int | None) -> float:
    return float(np.nanmean(curve)) if index is None else float(curve[index])


def _stderr(values: Array) -> float:
    return float(values.std(ddof=1) / np.sqrt(len(values)))


def _holds(true: bool | np.bool_) -> str:
    return "yes" if true else "no"
