"""Remember for each class whether it has an ability, because checking a protocol anew is slow.

Python looks up every method of a runtime-checkable protocol at every `isinstance`: 20 microseconds, and an
agent asks twenty such questions per task.
"""

from __future__ import annotations

from abc import ABCMeta
from typing import TYPE_CHECKING, Any, Protocol

# the metaclass of protocols has no public name
_ProtocolMeta: Any = ABCMeta if TYPE_CHECKING else type(Protocol)


_known: dict[tuple[type, type], bool] = {}  # (protocol, class) -> whether its instances have the ability


class CheckedOncePerClass(_ProtocolMeta):  # type: ignore[misc]  # its base is only known at run time
    """Metaclass of the protocols in `capabilities.py`: `isinstance` examines each class once.

    All instances of a class must have the same abilities.
    """

    def __instancecheck__(cls, instance: Any) -> bool:  # noqa: N805  # of a metaclass
        kind = type(instance)
        if issubclass(kind, type):
            return bool(super().__instancecheck__(instance))  # a class, of which each has other methods
        if (cls, kind) not in _known:
            _known[cls, kind] = bool(super().__instancecheck__(instance))
        return _known[cls, kind]
