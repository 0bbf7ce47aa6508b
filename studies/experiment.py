"""The harness of all experiments: resumed jobs, paired differences, tables in Markdown and CSV, pictures.

An experiment is a list of `Part`s. A part runs `run(problem, row, seed, **common)` for every problem, row
and seed in worker processes; each result is a file, so that a stopped experiment continues. A run returns
its metrics by name: curves `(agents, n)`, numbers `(agents,)`, or one number. From them the harness writes

- `results.csv`: means with standard errors, and paired differences to the part's baseline with theirs;
- `results.md`: the same at the checkpoints, as tables;
- a picture of each part that names a curve to draw, from the lines of the CSV file.
"""

from __future__ import annotations

import csv
import json
import logging
import math
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import joblib  # type: ignore[import-untyped]  # it has no types
import numpy as np

from fbo_flower.algorithms import make_algorithm
from fbo_flower.errors import ConfigError
from fbo_flower.numerics.arrays import Array
from fbo_flower.numerics.threads import single_thread
from fbo_flower.reports.pictures import new_figure, save_figure
from fbo_flower.simulation import simulate
from fbo_flower.simulation.problems import Config, Problem
from fbo_flower.storage import atomic_file, file_name, read_arrays, writable_directory
from fbo_flower.study import Study

Arrays = dict[str, Array]
OnJob = Callable[[str, int, int], None]  # told the stage, and how many of its jobs are done


# -- one study in this process -------------------------------------------------------------------

BYTES = ("bytes_down", "bytes_up")


def run(
    problem: Any, algorithm: str, options: Mapping[str, Any], num_rounds: int | None = None, seed: int = 0,
    **more: Any,
) -> Study:  # fmt: skip
    """Return the study of an algorithm, named with its options, on the engine "inline"."""
    logging.getLogger("flwr").setLevel(logging.ERROR)
    made = make_algorithm(algorithm, options)
    return simulate(problem, algorithm=made, num_rounds=num_rounds, seed=seed, engine="inline", **more)


def rounds_of(algorithm: str, num_initial: int, budget: int) -> int:
    """Return the rounds for at least `budget` evaluations of every agent, one a round after the first."""
    return budget - num_initial + (2 if algorithm == "fed-ei" else 1)  # it has a round without a trial


def run_budget(problem: Problem, algorithm: str, options: Mapping[str, Any], seed: int, budget: int) -> Study:
    """Run a study in which every agent makes at least `budget` evaluations."""
    number = make_algorithm(algorithm, options).num_initial
    return run(problem, algorithm, options, rounds_of(algorithm, number, budget), seed)


def traffic(study: Study) -> Arrays:
    """Return the bytes down and up of a whole study per agent."""
    agents = int(study.settings["runs"][0]["num_agents"])
    return {name: np.array(float(np.sum(study.rounds[name])) / agents) for name in BYTES}


def has_data(problem: Problem) -> bool:
    """Return whether the problem's data files are there."""
    try:
        problem.check_data()
    except ConfigError:
        return False
    return True


def score(problem: Problem, config: Config, partition: int) -> float | None:
    """Return an agent's value without noise, scale and offset; None: what it observed has neither."""
    found = getattr(problem, "score", None)
    return None if found is None else float(found(config, partition))


def evaluations(study: Study, agent: int | str, budget: int | None = None) -> tuple[list[Config], Array]:
    """Return an agent's configurations and values `(n,)`, in the order of its trials."""
    mine = study.trials.where(agent=str(agent))
    order = np.argsort(mine["trial"], kind="stable")[:budget]
    return [mine["config"][row] for row in order], np.asarray(mine["value"], dtype=np.float64)[order]


def best_so_far(study: Study, problem: Problem, budget: int) -> Array:
    """Return the scores `(agents, budget)` of the best values so far."""
    agents = range(problem.num_agents)
    return np.array([curve_of(problem, agent, *evaluations(study, agent, budget)) for agent in agents])


def curve_of(problem: Problem, agent: int, configs: Sequence[Config], values: Array) -> Array:
    """Return for each evaluation the score of the configuration with the best value seen so far.

    Where values are noisy, that is what an agent would use, and the score is without noise. A failed
    evaluation improves nothing.
    """
    seen = np.where(np.isfinite(values), values, -np.inf)
    best = [int(np.argmax(seen[: i + 1])) for i in range(len(seen))]
    known = [score(problem, config, agent) for config in configs]
    return np.array([values[i] if known[i] is None else known[i] for i in best], dtype=np.float64)


def observed(study: Study, problem: Problem) -> Arrays:
    """Return the observations of all agents of a study, as a job saves them."""
    trials = study.trials
    return {
        "agent": np.array(trials["agent"].tolist(), dtype=np.float64),
        "points": np.array([problem.space.encode(config) for config in trials["config"]]),
        "values": np.asarray(trials["value"], dtype=np.float64),
    }


def held(saved: Arrays, agents: Iterable[int], count: int | None = None) -> dict[str, tuple[Array, Array]]:
    """Return agent -> points and values of the first `count` of its saved observations; None: all."""
    rows = {agent: np.flatnonzero(saved["agent"] == agent)[:count] for agent in agents}
    return {str(agent): (saved["points"][r], saved["values"][r]) for agent, r in rows.items()}


def starting_points(problem: Problem, seed: int, number: int) -> list[list[Config]]:
    """Return the random configurations that each agent begins with, whatever the algorithm."""
    study = run(problem, "random", {}, number, seed)
    return [evaluations(study, agent, number)[0] for agent in range(problem.num_agents)]


# -- jobs ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Job:
    """One function call of an experiment, whose result is a file."""

    function: Callable[..., Arrays]  # of a module, so that worker processes can import it
    row: tuple[Any, ...]  # its first arguments, which no other job of this function and label has
    common: Mapping[str, Any]  # its other arguments by name
    label: str = ""  # further part of the file's name

    @property
    def name(self) -> str:
        """Return the name of the job's file, without its ending."""
        return file_name("-".join(map(str, (self.label or self.function.__name__, *self.row))))

    def path(self, directory: Path) -> Path:
        """Return the file of its result."""
        return directory / "jobs" / f"{self.name}.npz"


def job(function: Callable[..., Arrays], *row: Any, **common: Any) -> Job:
    """Return the job that calls `function(*row, **common)`."""
    return Job(function, row, common)


def open_directory(directory: str | Path, settings: Mapping[str, Any]) -> Path:
    """Create the experiment's directory and return it; ConfigError if it holds other settings."""
    path = writable_directory(directory)
    (path / "jobs").mkdir(exist_ok=True)
    record = path / "experiment.json"
    text = json.dumps(settings, indent=2, sort_keys=True) + "\n"
    if record.exists() and record.read_bytes() != text.encode():
        raise ConfigError(
            f"out: expected an experiment with the same settings, got others in {path}; use another --out"
        )
    with atomic_file(record, text=True) as stream:
        stream.write(text)
    return path


def run_jobs(
    jobs: Sequence[Job], directory: Path, num_workers: int, on_job: OnJob | None = None, stage: str = ""
) -> None:
    """Run the jobs that have no result yet.

    Parameters
    ----------
    on_job : called with the stage, the number of finished jobs and the number of all jobs
    """
    missing = [job for job in jobs if not job.path(directory).exists()]
    done, told = len(jobs) - len(missing), on_job or (lambda *_: None)
    told(stage, done, len(jobs))
    work = (joblib.delayed(_compute)(each, directory) for each in missing)
    with single_thread(), joblib.parallel_config("loky", inner_max_num_threads=1):
        found = joblib.Parallel(num_workers, return_as="generator_unordered")(work)
        for place, _ in enumerate(found, done + 1):
            told(stage, place, len(jobs))


def _compute(job: Job, directory: Path) -> None:
    logging.getLogger("flwr").setLevel(logging.ERROR)
    save(directory, job, job.function(*job.row, **job.common))


def load(directory: Path, function: Callable[..., Arrays], *row: Any) -> Arrays:
    """Return the arrays that a finished job has saved."""
    return read_arrays(job(function, *row).path(directory))


def save(directory: Path, job: Job, arrays: Mapping[str, Array]) -> None:
    """Save the arrays of a finished job, whole or not at all."""
    with atomic_file(job.path(directory)) as stream:
        np.savez_compressed(stream, **dict[str, Any](arrays))


# -- numbers, tables, pictures ---------------------------------------------------------------------


def mean_and_error(values: Array) -> tuple[Array, Array]:
    """Return the mean over the first axis and its standard error; NaN for a single repetition."""
    mean = np.asarray(values.mean(axis=0))
    if len(values) < 2:
        return mean, np.full_like(mean, np.nan)
    with np.errstate(invalid="ignore"):  # of infinite values
        return mean, np.asarray(values.std(axis=0, ddof=1) / np.sqrt(len(values)))


def row(cells: Iterable[object]) -> str:
    """Return cells as a line of a Markdown table.

    >>> row(["a", 1])
    '| a | 1 |'
    """
    return f"| {' | '.join(map(str, cells))} |"


def head(cells: Sequence[object]) -> str:
    """Return the first two lines of a Markdown table."""
    return f"{row(cells)}\n{'|---' * len(cells)}|"


def table(columns: Sequence[object], rows: Iterable[Iterable[object]]) -> str:
    """Return rows of cells as a Markdown table.

    >>> print(table(["agent", "best"], [["0", "0.5"]]), end="")
    | agent | best |
    |---|---|
    | 0 | 0.5 |
    """
    return "\n".join([head(columns), *map(row, rows)]) + "\n"


# -- experiments -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Part:
    """One comparison of an experiment: rows on problems, over seeds."""

    title: str  # heading of the tables and stem of the picture's file name
    # run(problem, row, seed, **common) returns metrics by name: curves `(agents, n)`, numbers `(agents,)`, or
    # one number; with `joint`, run(problem, seed, **common) returns those of all rows as "row/metric"
    run: Callable[..., Arrays]
    problems: Sequence[str]
    rows: Sequence[str] | Mapping[str, Sequence[str]]  # labels; a mapping: problem -> labels
    seeds: range
    common: Mapping[str, Any] = field(default_factory=dict)
    baseline: str = ""  # the row that all others are compared with; "": none
    pairs: Sequence[tuple[str, str]] = ()  # further comparisons, a row with another
    # row -> labels of runs, of which the one with the better mean counts, at each place of a curve
    better: Mapping[str, Sequence[str]] = field(default_factory=dict)
    at: Sequence[int] = ()  # places of a curve that the tables show
    first: int = 1  # the first place of a curve
    places: Sequence[int] = ()  # all places of curves, if they are not `first`, `first + 1`, ...
    # what standard errors are over: "seeds", or "agents" if repetitions on one agent are not independent
    over: str = "seeds"
    champion: str = ""  # the row whose lead over each other is counted over the problems; "": none
    scaled_at: int | None = None  # place of the baseline's deviation; None: at each place its own
    joint: bool = False
    drawn: str = ""  # metric that is drawn; "": no picture
    axis: str = ""  # what places are; "": iterations after a `first` place of 0, else evaluations
    how: str = "gain"  # what is drawn: differences to the baseline, or means, on a linear axis or a "log" one
    fixed: bool = False  # whether there are no more seeds than these
    files: str = ""  # label of the files of its runs, which parts can share; "": the title
    against: str = ""  # number that the horizontal axis shows; "": the places of the curve

    @property
    def picture(self) -> str:
        """Return the name of the picture's file."""
        return re.sub(r"[^\w.]+", "-", self.title) + ".png"

    @property
    def averaged(self) -> int:
        """Return the axis of `(seeds, agents, n)` that is no repetition."""
        return 1 if self.over == "seeds" else 0

    def rows_of(self, problem: str) -> Sequence[str]:
        """Return the rows that are compared on a problem."""
        return self.rows[problem] if isinstance(self.rows, Mapping) else self.rows

    def labels(self, row: str) -> Sequence[str]:
        """Return the labels of the runs of a row."""
        return self.better.get(row, (row,))

    def places_of(self, count: int) -> Sequence[int]:
        """Return the places of a curve."""
        return self.places or range(self.first, self.first + count)

    def jobs(self, place: int) -> list[Job]:
        """Return the jobs of a seed, by its place."""
        found = []
        for seed in self.seeds[place : place + 1]:
            for problem in self.problems:
                names = [label for row in self.rows_of(problem) for label in self.labels(row)]
                found += [self.job(problem, name, seed) for name in (names[:1] if self.joint else names)]
        return found

    def job(self, problem: str, label: str, seed: int) -> Job:
        """Return the job of a run."""
        row = (problem, seed) if self.joint else (problem, label, seed)
        return Job(self.run, row, self.common, self.files or self.title)

    def results(self, directory: Path, problem: str, label: str) -> dict[str, dict[int, Array]]:
        """Return metric -> seed -> `(agents, n)` of the finished runs."""
        found: dict[str, dict[int, Array]] = {}
        for seed in self.seeds:
            path = self.job(problem, label, seed).path(directory)
            start = f"{label}/" if self.joint else ""
            for name, values in read_arrays(path).items() if path.exists() else ():
                if name.startswith(start):
                    shape = (1, 1) if values.ndim == 0 else (len(values), -1)
                    found.setdefault(name.removeprefix(start), {})[seed] = values.reshape(shape)
        return found

    def better_of(self, directory: Path, problem: str, row: str) -> dict[str, dict[int, Array]]:
        """Return the results of a row; of several runs, at each place the one with the better mean."""
        every = [self.results(directory, problem, label) for label in self.labels(row)]
        found = dict(every[0])
        for name in every[0] if len(every) > 1 else ():
            seeds = sorted(set.intersection(*(set(each.get(name, ())) for each in every)))
            if seeds:
                values = np.array([[each[name][seed] for seed in seeds] for each in every])
                best = values.mean(axis=(1, 2)).argmax(axis=0)
                chosen = np.take_along_axis(values, best[None, None, None, :], axis=0)[0]
                found[name] = dict(zip(seeds, chosen, strict=True))
        return found


@dataclass(frozen=True)
class Experiment:
    """An experiment that can be started by name."""

    summary: str  # one line for listings
    parts: Callable[[bool, Path], Sequence[Part]]  # from `quick` and the experiment's directory
    # prepare(directory, parts, num_workers, on_job) computes what the runs read
    prepare: Callable[[Path, Sequence[Part], int, OnJob | None], None] | None = None
    # more(directory, lines) draws further pictures and returns their files
    more: Callable[[Path, Sequence[Line]], list[Path]] | None = None

    def run(
        self, name: str, directory: str | Path, quick: bool, num_workers: int, on_job: OnJob | None = None,
        num_seeds: int | None = None,
    ) -> list[Path]:  # fmt: skip
        """Run the jobs without a result, write the tables and pictures after every seed; return the files.

        A quick run writes them at its end.

        Parameters
        ----------
        num_seeds : None: those of the parts
        """
        path = open_directory(directory, {"experiment": name, "quick": quick})
        parts = self.parts(quick, path)
        if num_seeds is not None:
            more = [range(part.seeds.start, part.seeds.start + num_seeds) for part in parts]
            parts = [replace(part, seeds=part.seeds[:num_seeds] if part.fixed else seeds)
                     for part, seeds in zip(parts, more, strict=True)]  # fmt: skip
        if self.prepare is not None:
            self.prepare(path, parts, num_workers, on_job)
        files, number = list[Path](), max(len(part.seeds) for part in parts)
        for place in range(number):
            work = [each for part in parts for each in part.jobs(place)]
            run_jobs(work, path, num_workers, on_job, f"seed {place + 1}")
            if not quick or place + 1 == number:  # pictures would take a third of a quick run
                files = self.report(path, parts)
        return files

    def report(self, directory: Path, parts: Sequence[Part]) -> list[Path]:
        """Write the tables and the pictures of the finished runs; return the files."""
        lines = [line for part in parts for line in lines_of(part, directory)]
        text, pictures = [], list[Path]()
        for part in parts:
            mine = [line for line in lines if line.part == part.title]
            text += tables_of(part, mine)
            if part.drawn and any(line.metric == part.drawn for line in mine):
                pictures.append(draw(part, mine, directory / part.picture))
        written = directory / "results.md", directory / "results.csv"
        with atomic_file(written[0], text=True) as stream:
            stream.write("\n".join(text))
        with atomic_file(written[1], text=True) as stream:
            writer = csv.writer(stream, lineterminator="\n")
            writer.writerow([column.name for column in fields(Line)])
            writer.writerows([said(value) for value in vars(line).values()] for line in lines)
        files = [] if self.more is None else self.more(directory, lines)
        return [*written, *pictures, *files]


@dataclass(frozen=True)
class Line:
    """A line of `results.csv`: a row at a place of a metric, beside one row that it is compared with."""

    part: str
    problem: str
    row: str
    metric: str
    at: int | str  # place of the curve; "" for a number
    seeds: int
    agents: int
    mean: float
    error: float
    other: str = ""
    gain: float = math.nan  # paired difference to `other`, NaN without another
    gain_error: float = math.nan
    deviation: float = math.nan  # of the other row's values, over agents and seeds
    reached: float = math.nan  # the place from which on the mean is at least the other's last one; NaN: never
    median: float = math.nan  # of the independent repetitions


def said(value: object) -> str:
    """Return a cell of a CSV file: six digits of a number, nothing for NaN."""
    if isinstance(value, float):
        return "" if np.isnan(value) else f"{value:.6g}"
    return str(value)


def lines_of(part: Part, directory: Path) -> list[Line]:
    """Return the lines of all finished runs of a part."""
    found = []
    for problem in part.problems:
        rows = part.rows_of(problem)
        known = {row: part.better_of(directory, problem, row) for row in rows}
        for row in rows:
            pairs = ((row, part.baseline), *part.pairs, *((part.champion, rival) for rival in rows))
            others = dict.fromkeys(b for a, b in pairs if a == row != b)
            for metric, by_seed in ((name, found) for name, found in known[row].items() if found):
                mine = np.stack(list(by_seed.values()))
                repeats = mine.mean(axis=part.averaged)
                at: Sequence[int | str] = [""] if mine.shape[2] == 1 else part.places_of(mine.shape[2])
                numbers = [n.tolist() for n in (*mean_and_error(repeats), np.median(repeats, axis=0))]
                size = (len(mine), mine.shape[1])
                start = [
                    Line(part.title, problem, row, metric, place, *size, mean, error, median=middle)
                    for place, mean, error, middle in zip(at, *numbers, strict=True)
                ]
                compared = [other for other in others if metric in known.get(other, ())]
                for other in compared:
                    last = part.labels(other)[-1]
                    spread = known[other] if last == other else part.results(directory, problem, last)
                    found += _compared(part, start, by_seed, known[other][metric], other, spread[metric])
                found += [] if compared else start
    return found


def _compared(
    part: Part, start: list[Line], mine: dict[int, Array], others: dict[int, Array], other: str,
    spread: dict[int, Array],
) -> list[Line]:  # fmt: skip
    """Return the lines with paired differences, over the seeds and agents that both rows have."""
    seeds = [seed for seed in mine if seed in others]
    if not seeds:
        return start
    agents, n = np.min([[*values.shape] for values in (mine[seeds[0]], others[seeds[0]])], axis=0)
    end = np.stack(list(others.values()))[:, :, n - 1].mean()
    deviation = np.stack(list(spread.values())).std(axis=(0, 1))[:n]
    if part.scaled_at is not None:
        deviation = np.full(n, deviation[part.places_of(n).index(part.scaled_at)])
    with np.errstate(invalid="ignore"):  # infinite values
        gaps = np.stack([mine[seed][:agents, :n] - others[seed][:agents, :n] for seed in seeds])
    gain, error = mean_and_error(gaps.mean(axis=part.averaged))
    reached = np.flatnonzero(np.array([line.mean for line in start[:n]]) >= end - 1e-12)
    first = float(part.places_of(n)[reached[0]]) if len(reached) else math.nan
    found = [
        replace(line, other=other, gain=g, gain_error=e, deviation=d, reached=first)
        for line, g, e, d in zip(start[:n], gain.tolist(), error.tolist(), deviation.tolist(), strict=True)
    ]
    return found + start[n:]


def within(mean: float, error: float, sign: str = "") -> str:
    """Return a mean and its error as text, with two digits of the error; the mean alone without one.

    >>> within(0.12345, 0.0123), within(12.345, float("nan")), within(3.0, 0.0, "+")
    ('0.123 ± 0.012', '12.35', '+3')
    """
    if np.isnan(error):
        return "" if np.isnan(mean) else f"{mean:{sign}.4g}"
    if error == 0:
        return f"{mean:{sign}.6g}"
    digits = min(max(1 - math.floor(math.log10(error)), 0), 6)
    return f"{mean:{sign}.{digits}f} ± {error:.{digits}f}"


def tables_of(part: Part, lines: Sequence[Line]) -> list[str]:
    """Return the tables of a part: curves at the checkpoints, numbers, and the lead of the champion."""
    text = [f"# {part.title}\n"]
    for problem in part.problems:
        mine = [line for line in lines if line.problem == problem]
        for metric in dict.fromkeys(line.metric for line in mine if line.at != "" and part.at):
            shown = [line for line in mine if line.metric == metric]
            at = [place for place in part.at if any(line.at == place for line in shown)]
            text += [f"## {problem}: {metric}\n", _compared_rows(shown, "at", at)]
        if numbers := [line for line in mine if line.at == ""]:
            metrics = list(dict.fromkeys(line.metric for line in numbers))
            text += [f"## {problem}: numbers\n", _compared_rows(numbers, "metric", metrics)]
    if part.champion:
        text += [f"## {part.champion} over the problems\n", _leads(part, lines)]
    return text


def _compared_rows(lines: Sequence[Line], key: str, names: Sequence[Any]) -> str:
    """Return a table of rows with their differences from others, a column for each place or metric."""
    rows = []
    for row, other in dict.fromkeys((line.row, line.other) for line in lines):
        mine = {getattr(line, key): line for line in lines if (line.row, line.other) == (row, other)}
        own = [within(mine[n].mean, mine[n].error) if n in mine else "" for n in names]
        gains = [within(mine[n].gain, mine[n].gain_error, "+") if n in mine else "" for n in names]
        first = next(iter(mine.values()))
        reached = "" if not other else "never" if np.isnan(first.reached) else f"{first.reached:.0f}"
        rows.append([row, first.seeds, first.agents, *own, other, *gains, *[reached] * (key == "at")])
    columns = [f"at {name}" if key == "at" else name for name in names]
    end = ["its end reached at"] * (key == "at")
    return table(["row", "seeds", "agents", *columns, "minus", *columns, *end], rows)


def _leads(part: Part, lines: Sequence[Line]) -> str:
    """Return mean gains in the baseline's deviations, and on how many problems the champion is ahead."""
    rows = []
    for name in dict.fromkeys(line.row for line in lines):
        for at in part.at:
            mine = [x for x in lines if (x.row, x.at, x.other) == (name, at, part.baseline)]
            lead = [x for x in lines if (x.row, x.at, x.other) == (part.champion, at, name)]
            z = np.array([x.gain / max(x.gain_error, 1e-12) for x in lead if not np.isnan(x.gain_error)])
            gained = np.mean([x.gain / max(x.deviation, 1e-12) for x in mine]) if mine else math.nan
            counts = [int(test.sum()) for test in (z > 0, z > 2, z < -1, z < -2)] if len(z) else [""] * 4
            rows.append([name, at, max(len(mine), len(lead)), within(float(gained), math.nan, "+"), *counts])
    columns = ["row", "at", "problems", "mean gain", f"{part.champion} is ahead", "by two s.e."]
    return table([*columns, "behind by one", "by two"], [row for row in rows if row[2]])


PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#8C564B", "#999999")
LINES, MARKERS = ("-", "--", ":", "-."), ("o", "s", "^", "D")


def draw(part: Part, lines: Sequence[Line], path: Path) -> Path:
    """Draw a metric's lines of the CSV file, a panel per problem, with bands of one standard error."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator

    gains, count = part.how == "gain", len(part.problems)
    known = [x for x in lines if x.metric == part.drawn and (not gains or x.other == part.baseline)]
    names, high = list(dict.fromkeys(line.row for line in known)), math.ceil(count / 4)
    wide = math.ceil(count / high)
    figure: Any = new_figure(3.6 * wide, 2.7 * high)
    axes: list[Any] = list(figure.subplots(high, wide, squeeze=False).ravel())
    for axis in axes[count:]:
        axis.set_visible(False)
    for axis, problem in zip(axes, part.problems, strict=False):
        axis.spines[["top", "right"]].set_visible(False)
        axis.set_title(problem, loc="left", fontsize=9)
        for place, name in enumerate(names):
            mine = list({x.at: x for x in known if (x.row, x.problem) == (name, problem)}.values())
            mean = np.array([line.gain if gains else line.mean for line in mine])
            error = np.nan_to_num([line.gain_error if gains else line.error for line in mine])
            turn, style = place // len(PALETTE) % len(LINES), {"color": PALETTE[place % len(PALETTE)]}
            if part.against:
                key = (name, problem, part.against)
                size = next((x.mean for x in lines if (x.row, x.problem, x.metric) == key), math.nan)
                if len(mean) and 0.0 < size < math.inf:
                    axis.errorbar(size, mean[0], error[0], fmt=MARKERS[turn], label=name, capsize=2, **style)
                continue
            at = np.array([line.at for line in mine], dtype=np.float64)
            axis.plot(at, mean, LINES[turn], label=name, linewidth=1.5, **style)
            axis.fill_between(at, mean - error, mean + error, alpha=0.15, linewidth=0, **style)
        if gains:
            axis.axhline(0.0, color="black", linewidth=0.8)
        if part.how == "log":
            axis.set_yscale("log")
        if part.against:
            axis.set_xscale("log", subs=[])
            axis.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
            axis.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
        else:
            axis.margins(x=0)
            axis.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        axis.set_xlabel(part.against or part.axis or ("evaluations" if part.first else "iterations"))
        if axis.get_subplotspec().is_first_col():
            text = f"{part.drawn} minus {part.baseline}" if gains else part.drawn
            axis.set_ylabel(textwrap.fill(text, 26))
    # one legend below all panels, with each label once
    handles = {text: h for axis in axes for h, text in zip(*axis.get_legend_handles_labels(), strict=True)}
    if handles:
        width, height = figure.get_size_inches()
        columns = max(1, min(5, len(handles), int(width / (0.55 + 0.075 * max(map(len, handles))))))
        figure.set_size_inches(width, height + 0.2 * math.ceil(len(handles) / columns))
        where = {"loc": "outside lower center", "ncols": columns, "frameon": False, "fontsize": 9}
        figure.legend(handles.values(), handles.keys(), **where)
    return save_figure(figure, path, 120)
