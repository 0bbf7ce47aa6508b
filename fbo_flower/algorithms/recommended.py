"""The algorithm that `simulate` uses for your own objective if you name none.

`docs/results/families.md` compares the algorithms and gives the reason: on similar agents the first good
points come earliest, and an agent sends one hundred numbers per round. `docs/papers/fts.md` says what each
option changes.
"""

from __future__ import annotations

from typing import Final

RECOMMENDED: Final = "fts"
RECOMMENDED_OPTIONS: Final[dict[str, object]] = {
    "advice": "portfolio",
    "initial_design": "advised",
    "lengthscale": "dimension",
    "y_transform": "winsorise",
    "integer_moves": True,
}
