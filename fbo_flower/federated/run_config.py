"""`tuned_run_config`: the mod for a ClientApp that reads its hyperparameters from `context.run_config`.

The tuner sends a configuration in the `config` of each message; a run config stays as the run began. The mod
writes the entries of the message's config that are keys of the run config into the run config that the client
sees, and so does `Strategy.start(train_config=..., evaluate_config=...)` after the tuning. A value keeps the
type of the run config's own, as far as it can.

The mod also notes which entries the client reads, and tells a tuner their names in a record of the reply. The
tuner marks its messages in `group_id`, which Flower's strategies leave empty, and takes the record out before
a strategy sees the reply. So a parameter that nobody reads is found out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from flwr.app import ConfigRecord, Context, Message
from flwr.clientapp.typing import ClientAppCallable

MARK = "fbo-flower"  # in a tuner's messages: tell what was read
READ = "fbo-flower.read"  # record of a reply: "read", names, and "keys" of the run config


class NotedDict(dict[str, Any]):
    """A dict that notes in a set which of its keys are read; reading it as a whole reads all of them."""

    def __init__(self, values: Mapping[str, Any], read: set[str]) -> None:
        super().__init__(values)
        self._read = read

    def _all(self) -> dict[str, Any]:
        self._read.update(super().keys())
        return dict(super().items())

    def __getitem__(self, name: str) -> Any:
        self._read.add(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        """Return a value, or the default if there is none."""
        self._read.add(name)
        return super().get(name, default)

    def pop(self, name: str, *default: Any) -> Any:
        """Remove a value and return it."""
        self._read.add(name)
        return super().pop(name, *default)

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __or__(self, other: Any) -> Any:
        return self._all() | other

    def __ror__(self, other: Any) -> Any:
        return other | self._all()

    def __eq__(self, other: object) -> bool:
        return self._all() == other

    __hash__ = None  # as of every dict

    def copy(self) -> dict[str, Any]:
        """Return a plain dict."""
        return self._all()

    def keys(self) -> Any:
        """Return all keys."""
        return self._all().keys()

    def values(self) -> Any:
        """Return all values."""
        return self._all().values()

    def items(self) -> Any:
        """Return all items."""
        return self._all().items()

    def __reduce__(self) -> Any:
        return dict, (self._all(),)


def tuned_run_config(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """Let a ClientApp find the tuned values in `context.run_config`; a mod, for `ClientApp(mods=[...])`.

    An entry of the message's config replaces the value of the same key in the run config, for this message.
    The value gets the type that the run config's own value has, see `as_own`.
    """
    own, read = context.run_config, set[str]()
    records = message.content.config_records
    found = {
        name: as_own(own[name], value)
        for record in records.values()
        for name, value in record.items()
        if name in own and isinstance(value, bool | int | float | str)
    }
    for record in records.values():
        record.__dict__["_data"] = NotedDict(dict(record.items()), read)
    context.run_config = NotedDict({**own, **found}, read)
    asked = message.metadata.group_id == MARK
    try:
        reply = call_next(message, context)
    finally:
        context.run_config = own
    if asked and not reply.has_error():
        lists = {"read": sorted(read), "keys": sorted(own)}
        noted: dict[str, Any] = {name: names for name, names in lists.items() if names}  # nothing empty
        reply.content[READ] = ConfigRecord({"version": 1, **noted})
    return reply


def as_own(own: object, value: Any) -> Any:
    """Return a tuned value in the type of the run config's own value.

    A whole number for an integer is an integer, another one stays what it is, because `lr = 1` in a
    pyproject.toml does not mean that 0.1 is wrong; a number for a text becomes a text.

    >>> as_own(3, 2.0), as_own(1, 0.5), as_own(0.1, 1), as_own(True, 0), as_own("l2", "l1"), as_own("3", 5)
    (2, 0.5, 1.0, False, 'l1', '5')
    """
    if isinstance(own, str) or isinstance(value, str):
        truth = {"true": True, "false": False}.get(str(value).lower())
        if isinstance(own, bool) and truth is not None:
            return truth
        return str(value).lower() if isinstance(value, bool) else str(value)  # as TOML spells it
    if isinstance(own, bool):
        return bool(value) if value in {0, 1} else value
    if isinstance(own, int):
        return int(value) if value == int(value) else value
    return float(value)
