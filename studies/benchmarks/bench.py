"""What the benchmarks share: their command line, CPU times, and rows of paired differences."""

from __future__ import annotations

import argparse
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fbo_flower.numerics.arrays import Array
from studies.jobs import Job, open_directory, run_jobs
from studies.report import mean_and_error, row

ROOT = Path(__file__).parents[2]


def options(
    doc: str | None, *positional: str, arguments: Sequence[str] | None = None, **defaults: Any
) -> argparse.Namespace:
    """Return the options of the command line, each of the type of its default; Flower logs errors only.

    Parameters
    ----------
    positional : names of arguments that are paths
    arguments : None: those of this process
    defaults : option -> default. False: a flag; a list: one or several of its entries; a tuple: one of them,
        the first by default; None: a path
    """
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in positional:
        parser.add_argument(name, type=Path)
    for name, default in defaults.items():
        flag = f"--{name.replace('_', '-')}"
        if default is False:
            parser.add_argument(flag, action="store_true")
        elif isinstance(default, list):
            parser.add_argument(flag, nargs="+", default=default, choices=default)
        elif isinstance(default, tuple):
            parser.add_argument(flag, default=default[0], choices=default)
        else:
            parser.add_argument(flag, default=default, type=Path if default is None else type(default))
    logging.getLogger("flwr").setLevel(logging.ERROR)
    return parser.parse_args(arguments)


def resumed(directory: Path, settings: Mapping[str, Any], jobs: Sequence[Job], workers: int = 1) -> Path:
    """Run the jobs without a result, print how many are done, and return their directory."""
    path = open_directory(directory, settings)
    run_jobs(jobs, path, workers, lambda _, done, of: print(f"# {done} of {of} runs are there", flush=True))
    return path


def cpu_ms(work: Callable[[], Any], repeats: int, take: Callable[[Any], Any] = min) -> tuple[float, Any]:
    """Return the CPU milliseconds of a call, the smallest or another of some, and its last result."""
    times, result = [], None
    for _ in range(repeats):
        begin = time.process_time()
        result = work()
        times.append(1e3 * (time.process_time() - begin))
    return float(take(times)), result


def both(values: Array, digits: int = 3, sign: str = "+") -> list[str]:
    """Return means over the first axis with their standard errors, a text for each column."""
    pairs = zip(*map(np.atleast_1d, mean_and_error(values)), strict=True)
    return [f"{mean:{sign}.{digits}f} ± {error:.{digits}f}" for mean, error in pairs]


def say(*cells: object) -> None:
    """Print a line of a Markdown table at once."""
    print(row(cells), flush=True)


def mesh(side: int) -> Array:
    """Return the points `(side^2, 2)` of a mesh of the unit square."""
    axis = np.linspace(0.0, 1.0, side)
    return np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
