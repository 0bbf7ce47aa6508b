"""What tasks and reports of Co-KG may hold, and the checks of a report before the server reads it."""

from __future__ import annotations

from typing import TypeVar

import numpy as np

from fbo_flower.algorithms.co_kg import prior
from fbo_flower.algorithms.co_kg.options import CoKGOptions
from fbo_flower.algorithms.co_kg.prior import LARGEST
from fbo_flower.algorithms.co_kg.state import SharedPrior
from fbo_flower.algorithms.records import Report, Task, floats
from fbo_flower.algorithms.schema import ArraySpec, Schema
from fbo_flower.errors import WireError
from fbo_flower.numerics.optim.point_sets import largest_size
from fbo_flower.numerics.surrogates.likelihood_grid import LOWEST, SIZE
from fbo_flower.space.space import SearchSpace

State = TypeVar("State")


def task_schema(options: CoKGOptions[State], space: SearchSpace) -> Schema:
    """Return the names, shapes and bounds of a task's arrays."""
    d, most = space.dimension, largest_size(options.memory_limit)
    return Schema(
        arrays={
            "hyperparameters": ArraySpec((space.num_features + 2,), low=-1e3, high=1e3),
            "units": ArraySpec((2,), low=-LARGEST, high=LARGEST),
            "pivots": ArraySpec((None, d), low=0.0, high=1.0, max_length=most),
            "point": ArraySpec((d,), low=0.0, high=1.0),
            "added": ArraySpec((None, d), low=0.0, high=1.0, max_length=max(options.refinement, 1)),
        },
        values={"fit": bool},
    )


def report_schema(options: CoKGOptions[State], space: SearchSpace) -> Schema:
    """Return the names, shapes and bounds of a report's arrays."""
    most = largest_size(options.memory_limit)
    arrays = {
        "moments": ArraySpec((3,), low=-LARGEST, high=LARGEST),
        "theta": ArraySpec((space.num_features + 2,), low=-2e3, high=2e3),
        "log_likelihoods": ArraySpec((SIZE,), low=LOWEST, high=-LOWEST),
        "best": ArraySpec((1,), "int64", 0, most),
        "best_mean": ArraySpec((1,)),
    }
    if options.secure_sums:
        del arrays["moments"], arrays["theta"], arrays["log_likelihoods"]
    vector = ArraySpec((None,), max_length=most)
    triangle = ArraySpec((None,), max_length=most * (most + 1) // 2)
    if options.framework == "data-communication":
        arrays["points"] = ArraySpec((None, space.dimension), low=0.0, high=1.0, max_length=2**16)
        arrays["values"] = ArraySpec((None,), low=-np.inf, high=np.inf, max_length=2**16)
    elif options.central == "barycenter":
        arrays |= {"mean": vector, "covariance": triangle}
    else:
        arrays |= {"precision": triangle, "shift": vector}
    return Schema(arrays)


def check_report(options: CoKGOptions[State], task: Task, report: Report) -> None:
    """Raise WireError if moments, trials or a posterior in a report are not possible values."""
    prior.check_warm_up(report)
    if "points" in report.arrays or "values" in report.arrays:
        points, values = (report.arrays.get(name, np.empty(0)) for name in ("points", "values"))
        if len(points) != len(values) or np.isinf(floats(values)).any():
            raise WireError(f"points: expected one per value, got {len(points)} and {len(values)}")
    setting = SharedPrior.read(task.arrays, options.kernel)
    if setting is not None:
        prior.check_posterior(report, setting)
