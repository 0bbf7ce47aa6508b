"""Results that an agent needs several times for one task, in its session and in its report.

A session and `summarise` are separate functions of the task and the agent's state. What both compute from
the same arrays is kept here while an array of the task, the anchor, exists. A result is found again only for
the same anchor and an equal key, so keeping it changes no result.
"""

from __future__ import annotations

import weakref
from collections.abc import Hashable
from typing import Any

from fbo_flower.algorithms.records import Array
from fbo_flower.numerics.surrogates.rff import RandomFeatures

MOST_KEPT = 2**11  # numbers of features that are kept for an agent: a process may have a thousand agents
_KEPT: dict[int, tuple[weakref.ref[Array], dict[Hashable, Any]]] = {}


def features_of(features: RandomFeatures, x: Array) -> Array:
    """Return `features(x)`, read-only; if it is small, it is kept as long as the array `x` exists."""
    kept = kept_with(x)
    key = "features", features.frequencies.tobytes(), features.phases.tobytes()
    if key in kept:
        known: Array = kept[key]
        return known
    phi = features(x)
    phi.setflags(write=False)
    if phi.size <= MOST_KEPT:
        kept[key] = phi
    return phi


def kept_with(anchor: Array) -> dict[Hashable, Any]:
    """Return the results that are kept as long as this array object exists."""
    name = id(anchor)
    found = _KEPT.get(name)
    if found is None or found[0]() is not anchor:
        kept = _KEPT  # the module's names are gone when the interpreter ends
        found = weakref.ref(anchor, lambda _: kept.pop(name, None)), {}
        _KEPT[name] = found
    return found[1]
