"""Write the tables of `docs/results/benchmarks.md` from the results of `whole_runs.py`; keep its text.

    python -m studies.benchmarks.page runs/benchmarks docs/results/benchmarks.md studies/results/benchmarks

The tables are between the lines `<!-- measured -->` and `<!-- end -->`. The longer ones are CSV files in the
folder that is named last.
"""

from __future__ import annotations

import json
import platform
import sys
import textwrap
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from studies.report import table, write_csv

BEGIN, END = "<!-- measured -->", "<!-- end -->"
ENGINES = ("ray", "inline", "flower")
PACKAGES = (
    "flwr", "ray", "numpy", "scipy", "scikit-learn", "PyXAB", "POT", "botorch", "torch", "optuna",
    "scikit-optimize", "bayesian-optimization", "pytest-benchmark",
)  # fmt: skip
AXES: dict[object, tuple[str, ...]] = {  # sizes against which growth is fitted
    "agent": ("history", "dimension", "grid points"),
    "server": ("agents", "grid points"),
    True: ("history",),
}
Row = Mapping[str, Any]


def write_page(out: Path, page: Path, tables: Path) -> None:
    """Write the short tables into the page and the long ones into the folder `tables`."""
    cells = [json.loads(path.read_text(encoding="utf-8")) for path in sorted((out / "cells").glob("*.json"))]
    peers = _benchmarks(out / "peers.json")
    steps = [row for path in sorted(out.glob("steps-*.json")) for row in _benchmarks(path)]
    parts = [
        machine(out, cells), rounds(cells, "idle"), rounds(cells, "fts"), peers_table(peers),
    ]  # fmt: skip
    long = [
        ("whole-studies", *others(cells)),
        ("how-busy-the-workers-are-engine-ray", *utilisation(cells)),
        ("growth", *growth(cells, steps)),
        *steps_tables(steps),
    ]
    for name, header, rows in long:
        if rows:  # leave the file alone if nothing was measured
            empty = [["" if cell == "-" else cell for cell in row] for row in rows]
            write_csv(tables / f"{name}.csv", header, empty)
    before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    body = "\n\n".join(part.rstrip("\n") for part in parts if part)
    page.write_text(f"{before}{BEGIN}\n\n{body}\n\n{END}{after}", encoding="utf-8")


def _benchmarks(path: Path) -> list[Row]:
    return list(json.loads(path.read_text(encoding="utf-8"))["benchmarks"]) if path.exists() else []


def machine(out: Path, cells: Iterable[Row]) -> str:
    """Return a description of the machine and the versions of the measurement."""
    cpu = "unknown CPU"
    if (out / "peers.json").exists():
        found = json.loads((out / "peers.json").read_text(encoding="utf-8"))
        cpu = f"{found['machine_info']['cpu']['count']} cores of {found['machine_info']['cpu']['brand_raw']}"
        cpu += f", {found['datetime'][:10]}"
    versions = []
    for package in PACKAGES:
        try:
            versions.append(f"{package} {metadata.version(package)}")
        except metadata.PackageNotFoundError:
            versions.append(f"{package} not installed")
    loads = [cell["load"] for cell in cells if "load" in cell]
    load = f" The load average before a whole run was {min(loads):.1f} to {max(loads):.1f}." if loads else ""
    return textwrap.fill(f"{cpu}; Python {platform.python_version()}; {', '.join(versions)}.{load}", 110)


def per_round(cell: Row) -> float | None:
    """Return the median seconds of the rounds after the first, or of the first if it is the only one."""
    seconds = cell.get("seconds")
    return float(np.median(seconds[1:] or seconds)) if seconds else None


def find(cells: Iterable[Row], what: str, engine: str, agents: int) -> Row:
    """Return the measurement of a short run; {} if there is none."""
    fitting = [
        c for c in cells
        if (c["what"], c["engine"], c["agents"]) == (what, engine, agents)
        and c["rounds"] < 10 and "sleep" not in c
    ]  # fmt: skip
    return fitting[0] if fitting else {}


def rounds(cells: Sequence[Row], what: str) -> str:
    """Return tables of seconds per round and memory, by engine and number of agents."""
    counts = sorted({c["agents"] for c in cells if c["what"] == what})
    rows = []
    for agents in counts:
        found = {engine: find(cells, what, engine, agents) for engine in ENGINES}
        seconds = {engine: per_round(cell) for engine, cell in found.items()}
        floor = per_round(find(cells, "idle", "ray", agents))
        row = [str(agents)]
        for engine in ENGINES:
            cell, value = found[engine], seconds[engine]
            missing = f"over {cell['limit']:g} s" if "limit" in cell else "-"
            row.append(missing if value is None else f"{value:.2f}")
        row.append(_ratio(seconds["ray"], seconds["flower"]))
        if what != "idle":
            row.append(_ratio(seconds["ray"], floor))
        row += [f"{cell['memory'] / 1e9:.2f}" if "memory" in cell else "-" for cell in found.values()]
        rows.append(row)
    title = "App that does nothing" if what == "idle" else f"{what.upper()}, free objective"
    header = ["agents", *(f"{e}, s" for e in ENGINES), "ray / flower"]
    header += [] if what == "idle" else ["ray / idle ray"]
    return f"### {title}\n\n" + table(header + [f"{e}, GB" for e in ENGINES], rows)


def others(cells: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """Return header and rows of the table of the longer runs and the other algorithms."""
    rows = []
    for c in cells:
        if (
            c.get("seconds")
            and c["what"] not in {"idle", "random"}
            and (c["what"] != "fts" or c["rounds"] >= 10)
        ):
            traffic = [np.mean(c[f"bytes_{way}"]) / c["agents"] for way in ("down", "up")]
            rows.append(
                [
                    f"{c['what']}, {c['agents']} agents, {c['rounds']} rounds, {c['engine']}",
                    f"{np.median(c['seconds']):.1f}", f"{sum(c['seconds']):.0f}", f"{c['total']:.0f}",
                    f"{c['memory'] / 1e9:.2f}", f"{c['memory_own'] / 1e9:.2f}",
                    f"{traffic[0]:.0f}", f"{traffic[1]:.0f}",
                ]
            )  # fmt: skip
    times = ["s per round", "s of rounds", "s with start"]
    return ["run", *times, "GB in all", "GB server", "bytes down", "bytes up"], rows


def utilisation(cells: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """Return header and rows of the table of how busy the workers were in all rounds."""
    rows = []
    for c in sorted(cells, key=lambda c: (c.get("sleep", 0.0), c["agents"])):
        if c.get("busy") and c["engine"] == "ray" and c["rounds"] < 10:
            busy, passed = sum(c["busy"][1:]), sum(c["seconds"][1:])
            asleep = c["sleep"] * c["agents"] * (c["rounds"] - 1) if "sleep" in c else None
            share = "-" if asleep is None else f"{100 * asleep / passed / c['workers']:.0f}"
            cost = "free" if asleep is None else f"{1e3 * c['sleep']:g} ms"
            rows.append(
                [c["what"], cost, str(c["agents"]), f"{passed / (c['rounds'] - 1):.2f}",
                 f"{100 * busy / passed / c['workers']:.0f}", share]
            )  # fmt: skip
    header = ["algorithm", "evaluation", "agents", "s per round", "workers busy, %", "with evaluations, %"]
    return header, rows


def growth(cells: Sequence[Row], steps: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """Return header and rows of the table of fitted exponents `b` of time ~ size^b."""
    rows = []
    for what in ("idle", "fts"):
        for engine in ENGINES:
            points = [
                (n, per_round(find(cells, what, engine, n)))
                for n in sorted({c["agents"] for c in cells if c["what"] == what and c["agents"] >= 1000})
            ]
            known = [(n, s) for n, s in points if s is not None]
            if len(known) > 1:
                rows.append([f"{what}, {engine}: a round", "agents", _sizes(known), _exponent(known)])
    for (algorithm, side), variants in sorted(_by_step(steps).items()):
        for axis, known in variants.items():
            if len(known) > 2 and axis in AXES[algorithm == "rfms" or side]:
                rows.append([f"{algorithm}: {side} step", axis, _sizes(known), _exponent(known)])
    return ["time of", "against", "sizes", "exponent"], rows


def _by_step(steps: Sequence[Row]) -> dict[tuple[str, str], dict[str, list[tuple[int, float]]]]:
    """Return (algorithm, side) -> axis -> sizes and seconds, the other two axes fixed."""
    fixed = {"history": (2, 4), "dimension": (20, 4), "agents": (10, 2)}
    found: dict[tuple[str, str], dict[str, list[tuple[int, float]]]] = defaultdict(lambda: defaultdict(list))
    for b in steps:
        info, seconds = b["extra_info"], float(b["stats"]["mean"])
        if "points" in info:
            found[info["algorithm"], info["side"]]["grid points"].append((info["points"], seconds))
            continue
        for axis, others in fixed.items():
            rest = tuple(info[name] for name in fixed if name != axis)
            if axis == "history" if info["algorithm"] == "rfms" else rest == others:
                found[info["algorithm"], info["side"]][axis].append((info[axis], seconds))
    return {key: {axis: sorted(known) for axis, known in axes.items()} for key, axes in found.items()}


def steps_tables(steps: Sequence[Row]) -> list[tuple[str, list[str], list[list[str]]]]:
    """Return name, header and rows of the tables of milliseconds per step."""
    found = _by_step(steps)
    tables = []
    for side, axes in (("agent", ("history", "dimension")), ("server", ("history", "agents"))):
        for axis in axes:
            sizes = sorted({n for (_, s), v in found.items() if s == side for n, _ in v.get(axis, ())})
            rows = []
            for (algorithm, own), variants in sorted(found.items()):
                known = dict(variants.get(axis, ()))
                if own == side and known:
                    rows.append([algorithm, *(_ms(known.get(n)) for n in sizes)])
            tables.append((f"one-{side}-step-cpu-ms-against-{axis}", ["algorithm", *map(str, sizes)], rows))
    return tables


def peers_table(peers: Sequence[Row]) -> str:
    """Return tables of the libraries' times and their ratios to ours."""
    groups: dict[str, list[tuple[str, float]]] = defaultdict(list)
    for b in peers:
        groups[str(b["group"])].append((b["extra_info"]["who"], float(b["stats"]["mean"])))
    rows = []
    for group, times in groups.items():
        own = min(seconds for who, seconds in times if who.startswith("fbo-flower"))
        for number, (who, seconds) in enumerate(sorted(times, key=lambda row: row[1])):
            rows.append(["" if number else group, who, _ms(seconds), f"{seconds / own:.1f}"])
    header = ["work", "library", "CPU ms", "ratio to ours"]
    return "### Beside other libraries\n\n" + table(header, rows) if rows else ""


def _ratio(value: float | None, to: float | None) -> str:
    return "-" if value is None or not to else f"{value / to:.2f}" if value < 10 * to else f"{value / to:.0f}"


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{1e3 * seconds:.3g}"


def _sizes(known: Sequence[tuple[int, float]]) -> str:
    return ", ".join(str(n) for n, _ in known)


def _exponent(known: Sequence[tuple[int, float]]) -> str:
    sizes, seconds = np.array(known).T
    return f"{np.polyfit(np.log(sizes), np.log(seconds), 1)[0]:.2f}"


if __name__ == "__main__":
    write_page(*map(Path, sys.argv[1:4]))
