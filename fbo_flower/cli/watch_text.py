"""The state of a run as lines of text; their number does not grow with the agents."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta

from fbo_flower.cli.watch_state import RunState
from fbo_flower.errors import printable

_BAR = 25  # characters
_NAME = 30  # characters of an agent's name


def state_lines(state: RunState, status: str, now: datetime, goes_on: bool = True) -> Iterator[str]:
    """Yield the lines that show a run.

    Parameters
    ----------
    status : one sentence about the server
    now : the time, from which the expected end is counted
    goes_on : whether an end can be expected; False: its process has died
    """
    yield printable(f"{state.label or 'run'}: {status}")
    yield _line("rounds", f"{state.num_done} of {state.num_rounds or '?'} done{_bar(state)}")
    if state.open_round:
        asked = len(state.waiting) + len(state.answered)
        yield _line("open", f"round {state.open_round}: {len(state.answered):,} of {asked:,} agents answered")
    yield _line("agents", _agents(state))
    for name, numbers, unit in (("silent", state.silent, "unanswered"), ("failing", state.failed, "failed")):
        if numbers:
            yield _line(f"  {name}", _worst(state, numbers, unit))
    yield from _results(state)
    if (seconds := state.seconds_per_round) is not None:
        clock = " of a simulated clock" if state.simulated else ""
        yield _line("per round", f"{duration(seconds)}{clock} (the last: {duration(state.seconds[-1])})")
    if goes_on and (left := state.seconds_left) is not None:
        end = now + timedelta(seconds=left)
        day = "" if end.date() == now.date() else f"{end:%Y-%m-%d} "
        yield _line("end", f"expected at {day}{end:%H:%M:%S}, in {duration(left)}")


def _results(state: RunState) -> Iterator[str]:
    totals = state.totals
    if state.best is not None:
        mean = "" if state.mean is None else f", mean over agents {state.mean:.6g}"
        yield _line("best", f"{state.best:.6g}{mean}")
    elif not totals["replies"]:
        yield _line("best", "no round has ended yet")
    elif state.disclosed:
        yield _line("best", "no evaluation has succeeded yet")
    else:
        yield _line("best", "not disclosed; each device has its own: fbo-flower best JOURNAL")
    done = f"{totals['evaluations']:,} done" if totals["evaluations"] else "not counted"
    yield _line("evaluations", f"{done}, {totals['failed_trials']:,} failed")
    lost = f", {totals['failures']:,} lost, {totals['refused']:,} refused"
    yield _line("replies", f"{totals['replies']:,} valid{lost}")


def _agents(state: RunState) -> str:
    parts = [f"{len(state.agents):,}", f"{len(state.present - set(state.silent)):,} present"]
    if state.fraction < 1.0:
        parts[1] = f"{len(state.present):,} drawn for this round"
    parts.append(f"{len(state.silent):,} silent")
    if state.fraction == 1.0:
        parts.append(f"{len(state.left):,} left or resting")
    return ", ".join(parts)


def _worst(state: RunState, numbers: Mapping[str, int], unit: str) -> str:
    worst = state.worst(numbers)
    named = ", ".join(f"{printable(agent)[:_NAME]} ({number:,} {unit})" for agent, number in worst)
    more = len(numbers) - len(worst)
    return named + (f" and {more:,} more" if more else "")


def _bar(state: RunState) -> str:
    if not state.num_rounds:
        return ""
    full = round(_BAR * min(state.num_done / state.num_rounds, 1.0))
    return f"  [{'#' * full}{'.' * (_BAR - full)}]"


def _line(name: str, said: str) -> str:
    return f"  {name:<12} {said}"


def duration(seconds: float) -> str:
    """Return a duration in its two largest units.

    >>> duration(0.25), duration(12.3), duration(200), duration(7300), duration(100_000)
    ('0.25 s', '12 s', '3 min 20 s', '2 h 1 min', '1 d 3 h')
    """
    if seconds < 9.95:
        return f"{seconds:.2g} s"
    whole = math.floor(seconds + 0.5)
    for unit, size, smaller, part in (("d", 86400, "h", 3600), ("h", 3600, "min", 60), ("min", 60, "s", 1)):
        if whole >= size:
            return f"{whole // size} {unit} {whole % size // part} {smaller}"
    return f"{whole} s"
