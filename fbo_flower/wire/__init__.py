"""What crosses the wire, and the checks that it has to pass."""

from fbo_flower.wire.codec import (
    MAX_TASK,
    MAX_TEXT,
    MAX_TRIALS,
    SCHEMA_VERSION,
    Disclosure,
    Envelope,
    Packed,
    pack_report,
    pack_task,
    readdress,
    show,
    unpack_envelope,
    unpack_report,
    unpack_task,
)

__all__ = [
    "MAX_TASK",
    "MAX_TEXT",
    "MAX_TRIALS",
    "SCHEMA_VERSION",
    "Disclosure",
    "Envelope",
    "Packed",
    "pack_report",
    "pack_task",
    "readdress",
    "show",
    "unpack_envelope",
    "unpack_report",
    "unpack_task",
]
