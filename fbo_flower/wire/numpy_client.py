"""Messages for Flower's `NumPyClient`: a list of arrays, and scalars.

Elsewhere a message holds its arrays by name. `NumPyClient.fit` and the legacy API carry a list, so the
scalars hold the arrays' names as one comma-separated text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fbo_flower.algorithms.records import AnyArray, Scalar
from fbo_flower.errors import WireError
from fbo_flower.wire.checks import show
from fbo_flower.wire.codec import Packed

NAMES = "names"  # scalar that holds the arrays' names, joined by commas


def to_lists(packed: Packed) -> tuple[list[AnyArray], dict[str, Scalar]]:
    """Return a message as the list of arrays and the scalars that `NumPyClient` takes."""
    arrays, config = packed
    return list(arrays.values()), config | {NAMES: ",".join(arrays)}


def from_lists(arrays: Sequence[AnyArray], config: Mapping[str, Scalar]) -> Packed:
    """Return a message with its arrays by name; WireError if names and arrays differ in number."""
    text = config.get(NAMES, "")
    names = text.split(",") if isinstance(text, str) and text else []
    if not isinstance(text, str) or len(names) != len(arrays) or len(set(names)) != len(names):
        raise WireError(f"names: expected {len(arrays)} different names, got {show(text)}", NAMES)
    rest = {key: value for key, value in config.items() if key != NAMES}
    return Packed(dict(zip(names, arrays, strict=True)), rest)
