"""The options of `ei`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from fbo_flower.algorithms.options import check_choice, check_number
from fbo_flower.algorithms.protocol import Algorithm
from fbo_flower.numerics.surrogates.transforms import Y_TRANSFORMS

State = TypeVar("State")


@dataclass(frozen=True, kw_only=True)
class EIOptions(Algorithm[State]):
    """The options of an agent that maximises expected improvement.

    Parameters
    ----------
    num_initial : random trials of an agent's first round, evaluated as one batch
    y_transform : how values are transformed before modelling: "winsorise" (standardised, diverged low values
        raised first), "standardise", "rank" or "clip"
    min_distance : smallest distance to an earlier point, in the unit cube of features; 0 allows repeats
    num_candidates : points spread over the search space from which the maximisation starts; points around the
        incumbent are added
    """

    num_initial: int = 3
    y_transform: str = "winsorise"
    min_distance: float = 1e-3
    num_candidates: int = 256

    def __post_init__(self) -> None:
        check_number("num_initial", self.num_initial, 1, 10_000, integer=True)
        check_choice("y_transform", self.y_transform, Y_TRANSFORMS)
        check_number("min_distance", self.min_distance, 0, 1)
        check_number("num_candidates", self.num_candidates, 2, 2**16, integer=True)
