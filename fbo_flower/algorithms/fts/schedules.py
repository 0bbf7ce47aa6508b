"""`p_t`, the probability that iteration `t` follows the agent's own surrogate [Dai2020, Alg. 1]."""

from __future__ import annotations

import re

from fbo_flower.errors import ConfigError

Schedule = str | float
_NAMED = ("1-1/t^2", "1-1/sqrt(t)", "1-1/t")
_FIRST = re.compile(r"first-(\d{1,6})\Z")


def check_schedule(schedule: Schedule) -> None:
    """Raise ConfigError unless `schedule` is one that `own_probability` knows."""
    if isinstance(schedule, str):
        if schedule in _NAMED or _FIRST.match(schedule):
            return
    elif not isinstance(schedule, bool) and isinstance(schedule, int | float) and 0 <= schedule <= 1:
        return
    raise ConfigError(
        f"schedule: expected {', '.join(_NAMED)}, first-K, or a number between 0 and 1, got {schedule!r}"
    )


def own_probability(schedule: Schedule, iteration: int) -> float:
    """Return `p_t` for iteration `t >= 1`.

    "1-1/t^2" (the paper's real data), "1-1/sqrt(t)" (its synthetic functions) and "1-1/t" use
    `p_1 = p_2`; a number is constant; "first-K" follows the others K times, then never again.

    >>> own_probability("1-1/t^2", 1), own_probability("1-1/t^2", 2), own_probability("first-5", 5)
    (0.75, 0.75, 0.0)
    """
    t = max(iteration, 2)
    if schedule == "1-1/t^2":
        return 1 - 1 / t**2
    if schedule == "1-1/sqrt(t)":
        return float(1 - t**-0.5)
    if schedule == "1-1/t":
        return 1 - 1 / t
    if isinstance(schedule, str):
        return 0.0 if iteration <= int(schedule.removeprefix("first-")) else 1.0
    return float(schedule)
