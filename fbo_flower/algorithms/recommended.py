"""The algorithm that `simulate` uses if you name none, and options that we recommend.

`docs/results/fed-ei.md` gives the reason: with the same first points, `fed-ei` is ahead of the best optimiser
that an agent could run alone on most problems. `docs/papers/fed_ei.md` says what agents disclose.
"""

from __future__ import annotations

from typing import Final

RECOMMENDED: Final = "fed-ei"
# for `fts`, whose defaults follow the paper; `docs/papers/fts.md` says what each option changes
FTS_OPTIONS: Final[dict[str, object]] = {
    "advice": "portfolio",
    "initial_design": "advised",
    "lengthscale": "dimension",
    "y_transform": "winsorise",
    "integer_moves": True,
}
