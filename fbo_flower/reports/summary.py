"""Summarise a study in one row per algorithm, and show the rows as a table, for a terminal or in Markdown.

The agents are the sample: means and standard errors are over agents, and differences to the reference are
paired by agent. The reference is tuning alone (`ei`, `ts` or `local-pne`), because the question is what
federation adds. Algorithms are compared after as many evaluations as all of them have made. An agent that has
made its last evaluation keeps its incumbent; a mean leaves out agents without a success so far. If a run has
target agents, only they count.

Notation: n agents, curves `(n, max_evaluations)` of incumbents.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fbo_flower.errors import ConfigError, printable
from fbo_flower.numerics import finite
from fbo_flower.numerics.arrays import Array
from fbo_flower.study.ranking import incumbents, with_volumes
from fbo_flower.study.schema import label
from fbo_flower.study.table import Table

if TYPE_CHECKING:
    import rich.table

    from fbo_flower.study.study import Study

LOCAL_ONLY = ("ei", "ts", "local-pne")  # the best first
_LONG = 1e12  # from here on numbers have exponents
MOST = 0.95  # share of the gain; where top scores tie, chance decides the last thousandth


@dataclass(frozen=True)
class AgentMean:
    """A mean over agents with its standard error; NaN without agents, and for the error of one agent."""

    mean: float
    stderr: float
    num_agents: int

    def __str__(self) -> str:
        if math.isnan(self.mean):
            return "-"
        if abs(self.mean) >= _LONG or self.stderr >= _LONG:
            return f"{self.mean:.4g} ± {'-' if math.isnan(self.stderr) else format(self.stderr, '.2g')}"
        size = self.stderr if self.stderr > 0 else abs(self.mean) / 100  # of which two digits are shown
        decimals = min(max(1 - math.floor(math.log10(size)), 0), 8) if 0 < size < math.inf else 1
        error = "-" if math.isnan(self.stderr) else f"{self.stderr:.{decimals}f}"
        return f"{self.mean:.{decimals}f} ± {error}"


@dataclass(frozen=True)
class SummaryRow:
    """The results of one algorithm; `differences` are its values minus the reference's, paired by agent."""

    algorithm: str
    status: str
    num_agents: int
    num_evaluations: tuple[int, int]  # smallest and largest number of an agent
    checkpoints: dict[int, AgentMean]  # evaluations -> mean incumbent
    final: AgentMean
    reference: str | None
    compared_at: int  # number of evaluations that all algorithms have made
    differences: dict[int, AgentMean]
    final_difference: AgentMean  # after these evaluations; so are the next three
    share_no_worse: float  # share of agents whose incumbent is at least the reference's
    evaluations_to_reference: (
        int | None
    )  # until the mean incumbent is as good as the reference's; None: never
    evaluations_to_most: int | None  # the same, for 95 % of the reference's gain after its initial design
    bytes_down: float  # per agent and round
    bytes_up: float
    floats_per_agent: float  # floats to and from an agent in the whole run; NaN: not counted
    seconds: float
    failed_evaluations: int
    num_with_value: int | None  # agents that disclosed a value; None: values not disclosed
    replies: int
    evaluations_made: int | None  # by all agents, if they reuse the first value of a point; None: otherwise
    lost_replies: int
    refused_replies: int
    reasons: Mapping[str, int]  # reason in one word -> lost and refused replies
    disclosures: str  # what agents disclose, and who chose it; "": unknown


def summarise(
    study: Study, reference: str | None = None, checkpoints: Sequence[int] = (5, 10)
) -> list[SummaryRow]:
    """Return one row per algorithm of a study, compared with the reference.

    Parameters
    ----------
    study : with at least one run
    reference : label of the algorithm to compare with; None: tuning alone, if the study has it
    checkpoints : numbers of evaluations at which the incumbents are also compared; larger ones than the
        algorithms have made are left out

    Raises
    ------
    ConfigError
        If the study has no run with the reference's label.
    """
    if reference is None:
        runs = study.settings["runs"]
        names = [label(run) for name in LOCAL_ONLY for run in runs if run["algorithm"] == name]
        reference = next((name for name in (*names, *LOCAL_ONLY) if name in study.algorithms), None)
    elif reference not in study.algorithms:
        raise ConfigError(f"reference: expected one of {', '.join(study.algorithms)}, got {reference!r}")
    curves = {algorithm: agent_curves(study, algorithm) for algorithm in study.algorithms}
    lengths = {own.shape[1] for _, own in curves.values() if own.shape[1]}
    end = min(lengths, default=0)
    places = [k for k in checkpoints if k < end] + [end] * (len(lengths) > 1)
    return [_row(study, algorithm, reference, end, places, curves) for algorithm in study.algorithms]


def agent_curves(study: Study, algorithm: str) -> tuple[list[str], Array]:
    """Return the target agents' incumbents after every evaluation, carried forward to the end.

    With several objectives these are the hypervolumes of each agent's own front, see `Study.front`.

    Returns
    -------
    agents : in natural order
    curves : `(n, max_evaluations)`; NaN before an agent's first success
    """
    minimize = study.minimizes(algorithm)
    agents, curves = incumbents(result_rows(study, algorithm), minimize=minimize)
    known = np.where(np.isfinite(curves), np.arange(curves.shape[1]), 0)
    return agents, np.take_along_axis(curves, np.maximum.accumulate(known, axis=1), axis=1)


def result_rows(study: Study, algorithm: str) -> Table:
    """Return the trials of the target agents with the values that count towards their best so far.

    NaN where a trial broke a limit; with several objectives the hypervolume that the agent has reached.
    """
    rows = target_rows(study, study.trials, algorithm)
    if "feasible" in rows.columns:
        columns = {name: rows[name] for name in rows.columns}
        rows = Table({**columns, "value": np.where(rows["feasible"], rows["value"], np.nan)}, rows.kinds)
    if len(study.objectives) > 1 and len(rows):
        references = {agent: study.front(agent).reference for agent in dict.fromkeys(rows["agent"].tolist())}
        rows = with_volumes(rows, study.objectives, references)
    return rows


def target_rows(study: Study, table: Table, algorithm: str) -> Table:
    """Return the trials of one algorithm, only those of its target agents if its run has any."""
    table = table.where(algorithm=algorithm)
    targets = study.run(algorithm).get("target_agents")
    if targets is None:
        return table
    names = {str(target) for target in targets}
    return table.take(np.array([agent in names for agent in table["agent"].tolist()], dtype=bool))


def evaluations_of(study: Study, algorithm: str) -> Counter[str]:
    """Return how many evaluations each target agent has made, failed ones included."""
    trials = target_rows(study, study.trials, algorithm)
    counter: Counter[str] = Counter()
    for agent, pulls in zip(trials["agent"].tolist(), trials["pulls"].tolist(), strict=True):
        counter[agent] += pulls
    return counter


def estimate(values: Array) -> AgentMean:
    """Return the mean over agents `(n,)` with its standard error; agents with NaN are left out."""
    mean, stderr = finite.mean_and_stderr(np.asarray(values, dtype=np.float64)[:, None])
    return AgentMean(float(mean[0]), float(stderr[0]), int(np.isfinite(values).sum()))


def _row(
    study: Study,
    algorithm: str,
    reference: str | None,
    end: int,
    checkpoints: Sequence[int],
    curves: dict[str, tuple[list[str], Array]],
) -> SummaryRow:
    run, rounds = study.run(algorithm), study.rounds.where(algorithm=algorithm)
    trials = target_rows(study, study.trials, algorithm)
    agents, own = curves[algorithm]
    sign = -1.0 if study.minimizes(algorithm) else 1.0
    num_trials = evaluations_of(study, algorithm).values()
    num_agents = int(run.get("num_agents") or len(agents))
    num_turns = num_agents * len(set(rounds["round"].tolist())) or math.nan  # turns of an agent in a round

    to_reference = to_most = None
    gains = np.full((0, end), np.nan)  # (n, end), agents that both runs have
    final_gain = np.empty(0)
    if reference is not None:
        reference_agents, theirs = curves[reference]
        means = finite.mean_and_stderr(theirs[:, :end])[0]
        target = float(means[-1]) if end else math.nan
        start = estimate(_after(theirs, int(study.run(reference).get("num_initial") or 1))).mean
        to_reference = _evaluations_to(sign * own[:, :end], sign * target)
        to_most = _evaluations_to(sign * own[:, :end], sign * finite.between(start, target, MOST))
        if algorithm != reference:
            place = {agent: i for i, agent in enumerate(reference_agents)}
            mine = own[[i for i, agent in enumerate(agents) if agent in place]]
            theirs = theirs[[place[agent] for agent in agents if agent in place]]
            gains = sign * finite.difference(mine[:, :end], theirs[:, :end])
            final_gain = _final(gains)[np.isfinite(_final(gains))]
    final = estimate(_final(own))
    seen = rounds["mean_incumbent"][np.isfinite(rounds["mean_incumbent"])]
    if not len(agents) and len(seen):  # no trials are disclosed, but the strategy saw means
        final = AgentMean(float(seen[-1]), math.nan, num_agents)
    with_value = run.get("num_with_value") if len(rounds) else 0
    if own.size:
        with_value = int(np.isfinite(_final(own)).sum())
    reasons: Counter[str] = Counter()
    for entry in " ".join(rounds["reasons"].tolist()).split():
        reason, _, number = entry.rpartition(":")
        reasons[reason] += int(number)
    floats = (rounds["floats_down"] + rounds["floats_up"]).sum() / (num_agents or math.nan)
    failed = (~np.isfinite(trials["value"])).sum() if len(trials) else rounds["failed_trials"].sum()
    return SummaryRow(
        algorithm=algorithm,
        status=str(run.get("status", "")),
        num_agents=len(agents) or num_agents,
        num_evaluations=(min(num_trials, default=0), max(num_trials, default=0)),
        checkpoints={k: estimate(_after(own, k)) for k in checkpoints},
        final=final,
        reference=reference,
        compared_at=end,
        differences={k: estimate(_after(gains, k)) for k in checkpoints},
        final_difference=estimate(final_gain),
        share_no_worse=float((final_gain >= 0).mean()) if len(final_gain) else math.nan,
        evaluations_to_reference=to_reference,
        evaluations_to_most=to_most,
        bytes_down=float(rounds["bytes_down"].sum() / num_turns),
        bytes_up=float(rounds["bytes_up"].sum() / num_turns),
        floats_per_agent=float(floats) if len(rounds) else math.nan,
        seconds=float(run.get("seconds") or rounds["seconds"].sum()),
        failed_evaluations=int(failed),
        num_with_value=with_value if isinstance(with_value, int) else None,
        replies=int(rounds["replies"].sum()),
        evaluations_made=sum(run["evaluations"].values()) if "evaluations" in run else None,
        lost_replies=int(rounds["failures"].sum()),
        refused_replies=int(rounds["refused"].sum()),
        reasons=dict(reasons),
        disclosures=disclosures_text(run),
    )


def disclosures_text(run: Mapping[str, object]) -> str:
    """Return what the agents of a run disclose and who chose it; "" if that is not known.

    >>> disclosures_text({"disclosures": {"trials, operator": 3}})
    'trials (operator)'
    >>> disclosures_text({"disclosures": {"none, default": 2, "trials, operator": 1}})
    'none (default): 2, trials (operator): 1'
    """
    chosen = run.get("disclosures")
    if not isinstance(chosen, dict):
        return ""
    texts = {"{} ({})".format(*str(choice).split(", ", 1)): number for choice, number in chosen.items()}
    if len(texts) == 1:
        return next(iter(texts))
    return ", ".join(f"{text}: {number}" for text, number in texts.items())


def _evaluations_to(curves: Array, level: float) -> int | None:
    """Return the number of evaluations after which the mean incumbent reaches `level`; None: never."""
    reached = np.flatnonzero(finite.mean_and_stderr(curves)[0] >= level)
    return int(reached[0]) + 1 if len(reached) else None


def _after(curves: Array, num_evaluations: int) -> Array:
    """Return the column `(n,)` of the curves after `evaluations`; NaN if no agent made that number."""
    if not 1 <= num_evaluations <= curves.shape[1]:
        return np.full(len(curves), np.nan)
    return curves[:, num_evaluations - 1]


def _final(curves: Array) -> Array:
    return _after(curves, curves.shape[1])


# -- tables -----------------------------------------------------------------------------------------------


def gain_line(rows: Sequence[SummaryRow]) -> str:
    """Return what the first algorithm gains on the reference in a sentence; "" if that is not known."""
    row = next((row for row in rows[:1] if row.reference not in {None, row.algorithm}), None)
    if row is None or math.isnan(row.final_difference.mean):
        return ""
    gain, number = row.final_difference, row.final_difference.num_agents
    other = next(one for one in rows if one.algorithm == row.reference)
    values = [str(one.checkpoints.get(one.compared_at, one.final)).partition(" ")[0] for one in (row, other)]
    return printable(
        f"After {row.compared_at} evaluations of each agent, {row.algorithm} is at {values[0]} and "
        f"{row.reference}, with which each agent tunes alone, at {values[1]}: a gain of {_signed(gain)} "
        f"(standard error over agents). {round(row.share_no_worse * number)} of {number} agents are no worse."
    )


def render_table(rows: Sequence[SummaryRow], *, wide: bool = True) -> rich.table.Table:
    """Return the summary as a table for a terminal, a column per algorithm; three fit into 80 characters."""
    return render_cells(summary_cells(rows, wide=wide))


def render_cells(cells: Mapping[str, Sequence[str]]) -> rich.table.Table:
    """Return cells as a table for a terminal; the cells of the first heading become the columns."""
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    (_, names), *others = cells.items()
    table = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("", no_wrap=True)
    for name in names:
        text = Text(printable(name), style="bold")  # whose brackets are not markup
        table.add_column(text, justify="right", no_wrap=True)
    for name, values in others:
        table.add_row(*(Text(printable(text)) for text in (name, *values)))
    return table


def to_markdown(rows: Sequence[SummaryRow], *, wide: bool = True) -> str:
    """Return the summary as a Markdown table."""
    return markdown_table(summary_cells(rows, wide=wide))


def markdown_table(cells: Mapping[str, Sequence[str]]) -> str:
    """Return cells, given by column, as a Markdown table."""
    lines = [list(cells), ["---" if number == 0 else "---:" for number in range(len(cells))]]
    lines += map(list, zip(*cells.values(), strict=True))
    lines = [[printable(" ".join(cell.split())).replace("|", "\\|") for cell in line] for line in lines]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def format_bytes(num_bytes: float) -> str:
    """Return a number of bytes as text with a unit.

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


MOST_ROWS = 8  # of a table that is not wide
# what such a table shows first, by the beginnings of headings: what went wrong, then how good it is
_FIRST = (
    "failed evaluations", "lost", "refused", "agents with a value", "disclosed", "evaluations", "best at end",
    "gain", "best",
)  # fmt: skip


def summary_cells(rows: Sequence[SummaryRow], *, wide: bool = True) -> dict[str, list[str]]:
    """Return the summary by quantity: heading -> one cell per algorithm.

    Parameters
    ----------
    wide : all rows; otherwise the `MOST_ROWS` that say most
    """
    cells: dict[str, list[str]] = {}

    def add(heading: str, show: Callable[[SummaryRow], object], wanted: bool = True) -> None:
        if wanted:
            cells[heading] = [str(show(row)) for row in rows]

    reference = next((row.reference for row in rows if row.reference is not None), None)
    hidden, compared = any(row.num_with_value is None for row in rows), reference is not None
    places = list(rows[0].checkpoints) if rows else []

    def known(row: SummaryRow, cell: object) -> object:
        return "not disclosed" if row.num_with_value is None else cell

    add("algorithm", lambda r: r.algorithm + f" ({r.status})" * (r.status not in {"", "finished"}))
    add("agents", lambda r: r.num_agents)
    some = any(row.replies and row.num_with_value != row.num_agents for row in rows)
    add("agents with a value", lambda r: known(r, r.num_with_value), some)
    add("evaluations", lambda r: known(r, "-".join(map(str, sorted(set(r.num_evaluations))))))
    for k in places:
        cells[f"best at {k}"] = [str(row.checkpoints[k]) for row in rows]
    add("best at end", lambda r: known(r, r.final))
    for k in places if compared else ():
        cells[f"gain on {reference} at {k}"] = [_signed(row.differences[k]) for row in rows]
    equal = all(row.compared_at not in places for row in rows)
    add(f"gain on {reference} at end", lambda r: _signed(r.final_difference), compared and equal)
    add("agents no worse", lambda r: _or_dash(r.share_no_worse, ".0%"), compared)
    add("evaluations to match", lambda r: r.evaluations_to_reference or "not reached", compared)
    add(f"to {MOST:.0%} of its gain", lambda r: r.evaluations_to_most or "not reached", compared)
    add("down per agent-round", lambda r: format_bytes(r.bytes_down))
    add("up per agent-round", lambda r: format_bytes(r.bytes_up))
    add("floats per agent", lambda r: _or_dash(r.floats_per_agent, ",.0f"))
    add("seconds", lambda r: f"{r.seconds:.{0 if r.seconds >= 10 else 1}f}")
    reused = any(row.evaluations_made is not None for row in rows)
    add("evaluations really made", lambda r: "all" if (n := r.evaluations_made) is None else n, reused)
    add("failed evaluations", lambda r: r.failed_evaluations, any(r.failed_evaluations for r in rows))
    add("replies", lambda r: r.replies, hidden)
    add("disclosed", lambda r: r.disclosures or "unknown", hidden)
    add("lost replies", lambda r: r.lost_replies, any(row.lost_replies for row in rows))
    add("refused replies", lambda r: r.refused_replies, any(row.refused_replies for row in rows))
    for reason in sorted({reason for row in rows for reason in row.reasons}):
        cells[f"  {reason}"] = [str(row.reasons.get(reason, 0)) for row in rows]
    names, *others = cells
    ranks = {name: [name.startswith(w) for w in (*_FIRST, "")].index(True) for name in others}
    shown = others if wide else sorted(others, key=lambda name: ranks[name])[:MOST_ROWS]
    return {name: cells[name] for name in cells if name == names or name in shown}


def _or_dash(value: float, form: str) -> str:
    return "-" if math.isnan(value) else format(value, form)


def _signed(difference: AgentMean) -> str:
    return f"+{difference}" if difference.mean > 0 else str(difference)
