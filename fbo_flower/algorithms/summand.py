"""`Summand`: an array of reports of which the server needs only the sum over agents."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Summand:
    """The shape and bound of an array whose sum over agents is all that the server needs.

    Parameters
    ----------
    shape : shape of the array
    bound : largest absolute value of an entry
    """

    shape: tuple[int, ...]
    bound: float
