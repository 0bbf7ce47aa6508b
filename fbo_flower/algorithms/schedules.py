"""`p_t`, the probability that iteration `t` uses the agent's own surrogate [Dai2020, Alg. 1, line 3]."""

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

    The paper uses "1-1/t^2" for real data and "1-1/sqrt(t)" for synthetic functions. These two and "1-1/t"
    are 0 at `t = 1`; there `p_2` is returned instead. A number is constant. "first-K" is 0 in the first K
    iterations and 1 afterwards.

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
