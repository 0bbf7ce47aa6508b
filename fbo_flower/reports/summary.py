"""What a study shows, in one row per algorithm.

Agents are the sample: means and standard errors are over agents, differences to the reference are paired by
agent. The reference is tuning alone (`ts` or `local-pne`), because the question is what federation adds. An
agent that has made its last evaluation keeps its incumbent; an agent without a success so far is left out of
a mean. If a run names target agents, only they count.

Notation: n agents, curves `(n, max_evaluations)` of incumbents.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fbo_flower.errors import ConfigError
from fbo_flower.study.ranking import incumbents
from fbo_flower.study.schema import label
from fbo_flower.study.study import Study
from fbo_flower.study.table import Table

if TYPE_CHECKING:
    import rich.table

Array = npt.NDArray[np.float64]

LOCAL_ONLY = ("ts", "local-pne")
MOST = 0.95  # where scores tie at the top, the last thousandth is decided by luck


@dataclass(frozen=True)
class Estimate:
    """A mean over agents; NaN if there is none, and no standard error of one agent."""

    mean: float
    stderr: float
    num_agents: int

    def __str__(self) -> str:
        if math.isnan(self.mean):
            return "-"
        decimals = _decimals(self.stderr if self.stderr > 0 else abs(self.mean) / 100)
        error = "-" if math.isnan(self.stderr) else f"{self.stderr:.{decimals}f}"
        return f"{self.mean:.{decimals}f} ± {error}"


@dataclass(frozen=True)
class SummaryRow:
    """One algorithm's results; `differences` are own minus reference, paired by agent."""

    algorithm: str
    status: str
    num_agents: int
    num_evaluations: tuple[int, int]  # fewest and most of an agent
    checkpoints: dict[int, Estimate]  # evaluations -> mean incumbent
    final: Estimate
    reference: str | None
    differences: dict[int, Estimate]
    final_difference: Estimate
    share_no_worse: float  # of the agents: their final incumbent is at least their reference's
    evaluations_to_reference: int | None  # until the mean incumbent is the reference's final one; None: never
    evaluations_to_most: int | None  # the same to 95 % of the reference's gain since its initial design
    bytes_down: float  # per agent and round
    bytes_up: float
    floats_per_agent: (
        float  # to and from it in the whole run, of the algorithm's own arrays; NaN: not counted
    )
    seconds: float
    failed_evaluations: int
    evaluations_made: int | None  # of all agents, where they reuse the first value of a point
    failed_replies: int
    reasons: Mapping[str, int]  # of these, in one word each


def summarise(
    study: Study, reference: str | None = None, checkpoints: Sequence[int] = (5, 10)
) -> list[SummaryRow]:
    """Compare a study's algorithms.

    Parameters
    ----------
    study : with at least one run
    reference : the algorithm to compare with; by default tuning alone, if the study has it
    checkpoints : numbers of evaluations at which the incumbents are compared as well

    Raises
    ------
    ConfigError
        If the study has no such reference.
    """
    if reference is None:
        reference = local_only(study)
    elif reference not in study.algorithms:
        raise ConfigError(f"reference: expected one of {', '.join(study.algorithms)}, got {reference!r}")
    curves = {algorithm: agent_curves(study, algorithm) for algorithm in study.algorithms}
    return [_row(study, algorithm, reference, checkpoints, curves) for algorithm in study.algorithms]


def local_only(study: Study) -> str | None:
    """Name the study's first run in which agents tune alone, if there is one."""
    runs = study.settings["runs"]
    names = [label(run) for name in LOCAL_ONLY for run in runs if run["algorithm"] == name]
    return next((name for name in (*names, *LOCAL_ONLY) if name in study.algorithms), None)


def agent_curves(study: Study, algorithm: str) -> tuple[list[str], Array]:
    """Incumbents of the target agents by evaluation, carried to the end.

    Returns
    -------
    agents : in natural order
    curves : `(n, max_evaluations)`; NaN before an agent's first success
    """
    agents, curves = incumbents(target_rows(study, study.trials, algorithm))
    return agents, np.fmax.accumulate(curves, axis=1)  # fmax: NaN only if there was nothing else


def target_rows(study: Study, table: Table, algorithm: str) -> Table:
    """Rows of one algorithm and, if its run names target agents, of these."""
    table = table.where(algorithm=algorithm)
    targets = study.run(algorithm).get("target_agents")
    if targets is None:
        return table
    names = {str(target) for target in targets}
    return table.take(np.array([agent in names for agent in table["agent"].tolist()], dtype=bool))


def mean_and_stderr(curves: Array) -> tuple[Array, Array]:
    """Mean over agents and its standard error `s / sqrt(n)`, column by column; NaN entries are left out.

    Parameters
    ----------
    curves : `(n, num_points)`

    Returns
    -------
    mean : `(num_points,)`, NaN without agents
    stderr : `(num_points,)`, NaN with fewer than two
    """
    known = np.isfinite(curves)
    count = known.sum(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = np.where(known, curves, 0.0).sum(axis=0) / count
        squares = np.where(known, curves - mean, 0.0) ** 2
        stderr = np.sqrt(squares.sum(axis=0) / (count - 1.0) / count)  # n = 1: 0 / 0
    return np.where(count > 0, mean, np.nan), np.where(count > 1, stderr, np.nan)


def estimate(values: Array) -> Estimate:
    """Mean over agents `(n,)` with its standard error; agents with NaN are left out."""
    mean, stderr = mean_and_stderr(np.asarray(values, dtype=np.float64)[:, None])
    return Estimate(float(mean[0]), float(stderr[0]), int(np.isfinite(values).sum()))


def render_table(rows: Sequence[SummaryRow]) -> rich.table.Table:
    """Lay the summary out for a terminal: a column per algorithm; three fit into 80 characters."""
    return render_cells(_cells(rows))


def render_cells(cells: Mapping[str, Sequence[str]]) -> rich.table.Table:
    """Lay cells out for a terminal; those of the first heading are the columns."""
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    (_, names), *others = cells.items()
    table = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("", no_wrap=True)
    for name in names:
        table.add_column(Text(name, style="bold"), justify="right", no_wrap=True)  # Text: no markup
    for name, values in others:
        table.add_row(Text(name), *map(Text, values))
    return table


def to_markdown(rows: Sequence[SummaryRow]) -> str:
    """Lay the summary out as a table of a Markdown document."""
    return markdown_table(_cells(rows))


def markdown_table(cells: Mapping[str, Sequence[str]]) -> str:
    """Lay cells out as a table of a Markdown document, given by column."""
    lines = [list(cells), ["---" if number == 0 else "---:" for number in range(len(cells))]]
    lines += map(list, zip(*cells.values(), strict=True))
    lines = [[" ".join(cell.split()).replace("|", "\\|") for cell in line] for line in lines]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def format_bytes(num_bytes: float) -> str:
    """Write a number of bytes as a person reads it.

    Examples
    --------
    >>> format_bytes(42), format_bytes(4_250), format_bytes(7_300_000)
    ('42 B', '4.2 kB', '7.3 MB')
    """
    if math.isnan(num_bytes):
        return "-"
    unit = 0
    while num_bytes >= 999.5 and unit < 3:
        num_bytes, unit = num_bytes / 1000, unit + 1
    decimals = 0 if unit == 0 or num_bytes >= 99.95 else 1
    return f"{num_bytes:.{decimals}f} {('B', 'kB', 'MB', 'GB')[unit]}"


def _row(
    study: Study,
    algorithm: str,
    reference: str | None,
    checkpoints: Sequence[int],
    curves: dict[str, tuple[list[str], Array]],
) -> SummaryRow:
    run, rounds = study.run(algorithm), study.rounds.where(algorithm=algorithm)
    trials = target_rows(study, study.trials, algorithm)
    agents, own = curves[algorithm]
    counter: Counter[str] = Counter()
    for agent, pulls in zip(trials["agent"].tolist(), trials["pulls"].tolist(), strict=True):
        counter[agent] += pulls
    num_trials = counter.values()
    num_agents = int(run.get("num_agents") or len(agents))
    num_turns = num_agents * len(set(rounds["round"].tolist())) or math.nan  # of an agent in a round

    to_reference = to_most = None
    gains = np.full((0, own.shape[1]), np.nan)  # (n, max_evaluations), of the agents that both have
    final_gain = np.empty(0)
    if reference is not None:
        reference_agents, theirs = curves[reference]
        target = estimate(_final(theirs)).mean
        start = estimate(_after(theirs, int(study.run(reference).get("num_initial") or 1))).mean
        to_reference = _evaluations_to(own, target)
        to_most = _evaluations_to(own, start + MOST * (target - start))
        if algorithm != reference:
            place = {agent: i for i, agent in enumerate(reference_agents)}
            mine = own[[i for i, agent in enumerate(agents) if agent in place]]
            theirs = theirs[[place[agent] for agent in agents if agent in place]]
            length = min(mine.shape[1], theirs.shape[1])
            gains = mine[:, :length] - theirs[:, :length]
            final_gain = _final(mine) - _final(theirs)
            final_gain = final_gain[np.isfinite(final_gain)]
    return SummaryRow(
        algorithm=algorithm,
        status=str(run.get("status", "")),
        num_agents=len(agents) or num_agents,
        num_evaluations=(min(num_trials, default=0), max(num_trials, default=0)),
        checkpoints={k: estimate(_after(own, k)) for k in checkpoints},
        final=estimate(_final(own)) if len(agents) else _disclosed_mean(rounds, num_agents),
        reference=reference,
        differences={k: estimate(_after(gains, k)) for k in checkpoints},
        final_difference=estimate(final_gain),
        share_no_worse=float((final_gain >= 0).mean()) if len(final_gain) else math.nan,
        evaluations_to_reference=to_reference,
        evaluations_to_most=to_most,
        bytes_down=float(rounds["bytes_down"].sum() / num_turns),
        bytes_up=float(rounds["bytes_up"].sum() / num_turns),
        floats_per_agent=float((rounds["floats_down"] + rounds["floats_up"]).sum() / num_agents)
        if num_agents and len(rounds)
        else math.nan,
        seconds=float(run.get("seconds") or rounds["seconds"].sum()),
        failed_evaluations=int((~np.isfinite(trials["value"])).sum()),
        evaluations_made=sum(run["evaluations"].values()) if "evaluations" in run else None,
        failed_replies=int(rounds["failures"].sum() + rounds["refused"].sum()),
        reasons=_reasons(rounds),
    )


def _reasons(rounds: Table) -> dict[str, int]:
    """Add up the reasons of all rounds."""
    total: Counter[str] = Counter()
    for entry in " ".join(rounds["reasons"].tolist()).split():
        reason, _, number = entry.rpartition(":")
        total[reason] += int(number)
    return dict(total)


def _evaluations_to(curves: Array, level: float) -> int | None:
    """Return after how many evaluations the mean incumbent reaches `level`."""
    reached = np.flatnonzero(mean_and_stderr(curves)[0] >= level)
    return int(reached[0]) + 1 if len(reached) else None


def _after(curves: Array, num_evaluations: int) -> Array:
    """Column `(n,)` of the curves, NaN if nobody came that far."""
    if not 1 <= num_evaluations <= curves.shape[1]:
        return np.full(len(curves), np.nan)
    return curves[:, num_evaluations - 1]


def _final(curves: Array) -> Array:
    return _after(curves, curves.shape[1])


def _disclosed_mean(rounds: Table, num_agents: int) -> Estimate:
    """Last mean incumbent that a strategy saw, where agents keep their trials to themselves."""
    means = rounds["mean_incumbent"][np.isfinite(rounds["mean_incumbent"])]
    return Estimate(float(means[-1]), math.nan, num_agents) if len(means) else estimate(means)


def _cells(rows: Sequence[SummaryRow]) -> dict[str, list[str]]:
    """Heading -> a cell per row."""
    reference = next((row.reference for row in rows if row.reference is not None), None)
    cells: dict[str, list[str]] = {
        "algorithm": [
            row.algorithm + (f" ({row.status})" if row.status not in {"", "finished"} else "") for row in rows
        ],
        "agents": [str(row.num_agents) for row in rows],
        "evaluations": ["-".join(map(str, sorted(set(row.num_evaluations)))) for row in rows],
    }
    for k in rows[0].checkpoints if rows else ():
        cells[f"best at {k}"] = [str(row.checkpoints[k]) for row in rows]
    cells["best at end"] = [str(row.final) for row in rows]
    if reference is not None:
        for k in rows[0].differences:
            cells[f"gain on {reference} at {k}"] = [_signed(row.differences[k]) for row in rows]
        cells[f"gain on {reference} at end"] = [_signed(row.final_difference) for row in rows]
        cells["agents no worse"] = [
            "-" if math.isnan(row.share_no_worse) else f"{row.share_no_worse:.0%}" for row in rows
        ]
        cells["evaluations to match"] = [str(row.evaluations_to_reference or "not reached") for row in rows]
        cells[f"to {MOST:.0%} of its gain"] = [str(row.evaluations_to_most or "not reached") for row in rows]
    cells["down per agent-round"] = [format_bytes(row.bytes_down) for row in rows]
    cells["up per agent-round"] = [format_bytes(row.bytes_up) for row in rows]
    cells["floats per agent"] = [
        "-" if math.isnan(row.floats_per_agent) else f"{row.floats_per_agent:,.0f}" for row in rows
    ]
    cells["seconds"] = [f"{row.seconds:.{0 if row.seconds >= 10 else 1}f}" for row in rows]
    if any(row.evaluations_made is not None for row in rows):
        made = [row.evaluations_made for row in rows]
        cells["evaluations really made"] = ["all" if number is None else str(number) for number in made]
    if any(row.failed_evaluations for row in rows):
        cells["failed evaluations"] = [str(row.failed_evaluations) for row in rows]
    if any(row.failed_replies for row in rows):
        cells["failed replies"] = [str(row.failed_replies) for row in rows]
    for reason in sorted({reason for row in rows for reason in row.reasons}):
        cells[f"  {reason}"] = [str(row.reasons.get(reason, 0)) for row in rows]
    return cells


def _signed(difference: Estimate) -> str:
    return f"+{difference}" if difference.mean > 0 else str(difference)


def _decimals(size: float) -> int:
    """Decimals that show two significant digits of a number of this size."""
    return min(max(1 - math.floor(math.log10(size)), 0), 8) if 0 < size < math.inf else 1
