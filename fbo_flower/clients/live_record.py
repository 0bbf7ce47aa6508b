"""A record of Flower's state whose bytes are made only when somebody reads them.

The memory of a simulated agent stays in one process for many rounds. It is kept there as objects; packing and
unpacking it in every round would take longer than the agent's other work on a message. Flower, `pickle` and
`copy` see an ordinary `ConfigRecord` with the entries `data` and `values`.
"""

from __future__ import annotations

import json
from collections.abc import ItemsView, Iterator, Mapping, ValuesView
from typing import Any, SupportsBytes, cast

from flwr.app import ConfigRecord

from fbo_flower.wire.quick_records import entries_of, record_with


class LiveEntries(dict[str, Any]):
    """The entries of a record: `data`, which is packed when it is read, and `values`, as JSON.

    Parameters
    ----------
    live : bytes, or what `bytes()` packs; nobody changes it
    plain : JSON values; nobody changes them
    """

    def __init__(self, live: SupportsBytes, plain: Mapping[str, object]) -> None:
        super().__init__(data=None, values=None)
        self.live = live
        self.plain = plain

    def packed(self) -> dict[str, Any]:
        """Return the entries as Flower stores them."""
        return {"data": bytes(self.live), "values": json.dumps(dict(self.plain))}

    def __getitem__(self, key: str) -> Any:
        return self.packed()[key]

    def get(self, key: str, default: Any = None) -> Any:
        return self.packed().get(key, default)

    def items(self) -> ItemsView[str, Any]:  # type: ignore[override]  # a view of a copy
        return self.packed().items()

    def values(self) -> ValuesView[Any]:  # type: ignore[override]
        return self.packed().values()

    def __iter__(self) -> Iterator[str]:
        return iter(("data", "values"))

    def __eq__(self, other: object) -> bool:
        return self.packed() == (other.packed() if isinstance(other, LiveEntries) else other)

    __hash__ = None  # as of every dict

    def __repr__(self) -> str:
        return repr(self.packed())

    def copy(self) -> dict[str, Any]:
        return self.packed()

    def __reduce__(self) -> tuple[type[dict[str, Any]], tuple[dict[str, Any]]]:
        return dict, (self.packed(),)


def live_record(live: SupportsBytes, plain: Mapping[str, object]) -> ConfigRecord:
    """Return a record with the entries `data` and `values`; see `LiveEntries`."""
    return record_with(LiveEntries(live, plain))


def read_record(record: ConfigRecord) -> tuple[SupportsBytes, dict[str, Any]]:
    """Return the data and the values of a record, live or not."""
    entries = entries_of(record)
    if isinstance(entries, LiveEntries):
        return entries.live, dict(entries.plain)
    return cast(bytes, record["data"]), dict(json.loads(str(record["values"])))
