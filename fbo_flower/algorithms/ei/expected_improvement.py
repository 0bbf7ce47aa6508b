"""`ei`: expected improvement by every agent alone, the strongest local baseline; no communication."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fbo_flower.algorithms.ei.local import LocalEI
from fbo_flower.algorithms.independent import Independent
from fbo_flower.algorithms.progress import Progress


@dataclass(frozen=True, kw_only=True)
class ExpectedImprovement(LocalEI[Progress], Independent):
    """Expected improvement by every agent alone; `EIOptions` describes the options."""

    name: ClassVar[str] = "ei"

    def __post_init__(self) -> None:
        super().__post_init__()
        Independent.__post_init__(self)
