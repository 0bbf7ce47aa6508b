"""What a task of `fed-ei` must hold beyond its schema: all of the sums, and the features behind them."""

from __future__ import annotations

from fbo_flower.algorithms.records import Task
from fbo_flower.errors import WireError

SUMMED = ("gram", "moment", "energy", "agreement", "closeness")
NOISY = ("moment", "agreement")  # the sums that have noise, if any has
FEATURES = ("frequencies", "phases")


def check_task(task: Task, noisy: bool = False) -> None:
    """Raise WireError if a task lacks arrays or values that go with those it has.

    Parameters
    ----------
    noisy : whether the sums have noise, see `noisy_sums`
    """
    needed = (*NOISY, "counted", "summed", "observed") if noisy else (*SUMMED, "counted")
    present = [name for name in needed if name in task.arrays or name in task.values]
    if present:
        _check_complete(task, (*needed, *FEATURES), f"with {present[0]}")
    if task.values.get("share"):
        _check_complete(task, FEATURES, "with a request to share sums")


def _check_complete(task: Task, names: tuple[str, ...], occasion: str) -> None:
    missing = [name for name in names if name not in task.arrays and name not in task.values]
    if missing:
        raise WireError(f"task: expected {', '.join(names)} {occasion}, got no {', '.join(missing)}", "names")
