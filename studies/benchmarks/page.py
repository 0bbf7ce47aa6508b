"""Write the tables of `docs/results/benchmarks.md` from the results of `speed.whole_runs`; keep its text.

The tables are between the lines `<!-- measured -->` and `<!-- end -->`.
"""

from __future__ import annotations

import json
import os
import platform
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from studies.experiment import table

BEGIN, END = "<!-- measured -->", "<!-- end -->"
ENGINES = ("ray", "inline", "flower")
PACKAGES = (
    "flwr", "ray", "numpy", "scipy", "scikit-learn", "PyXAB", "POT", "botorch", "torch", "optuna",
    "scikit-optimize", "bayesian-optimization",
)  # fmt: skip
Row = Mapping[str, Any]


def write_page(out: Path, page: Path) -> None:
    """Write the tables into the page."""
    cells = [json.loads(path.read_text(encoding="utf-8")) for path in sorted((out / "cells").glob("*.json"))]
    path = out / "libraries.json"
    libraries = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    parts = [machine(cells), rounds(cells, "idle"), rounds(cells, "fts"), libraries_table(libraries)]
    before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    body = "\n\n".join(part.rstrip("\n") for part in parts if part)
    page.write_text(f"{before}{BEGIN}\n\n{body}\n\n{END}{after}", encoding="utf-8")


def machine(cells: Iterable[Row]) -> str:
    """Return a description of the machine and the versions of the measurement."""
    known = Path("/proc/cpuinfo")  # on Linux
    lines = known.read_text(encoding="utf-8").splitlines() if known.exists() else []
    brand = next(
        (line.partition(": ")[2] for line in lines if line.startswith("model name")), "an unknown CPU"
    )
    cpu = f"{os.cpu_count()} cores of {brand}, {date.today()}"
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
    """Return a measurement; {} if there is none."""
    key = (what, engine, agents)
    return next((c for c in cells if (c["what"], c["engine"], c["agents"]) == key), {})


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


def libraries_table(rows: Sequence[Row]) -> str:
    """Return a table of the libraries' times and their ratios to ours."""
    cells = []
    for group in dict.fromkeys(row["group"] for row in rows):
        mine = sorted((row for row in rows if row["group"] == group), key=lambda row: row["ms"])
        own = min(row["ms"] for row in mine if row["who"].startswith("fbo-flower"))
        for number, row in enumerate(mine):
            cells.append(["" if number else group, row["who"], f"{row['ms']:.3g}", f"{row['ms'] / own:.1f}"])
    columns = ["work", "library", "CPU ms", "ratio to ours"]
    return "### Beside other libraries\n\n" + table(columns, cells) if rows else ""


def _ratio(value: float | None, to: float | None) -> str:
    return "-" if value is None or not to else f"{value / to:.2f}" if value < 10 * to else f"{value / to:.0f}"
