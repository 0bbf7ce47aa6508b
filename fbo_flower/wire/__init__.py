"""Encode tasks and reports as Flower messages, and check every message that arrives."""

from fbo_flower.wire.codec import (
    MAX_TASK,
    MAX_TEXT,
    MAX_TRIALS,
    SCHEMA_VERSION,
    Disclosure,
    Envelope,
    Packed,
    decode_envelope,
    decode_report,
    decode_task,
    encode_report,
    encode_task,
    readdress,
    show,
)

__all__ = [
    "MAX_TASK",
    "MAX_TEXT",
    "MAX_TRIALS",
    "SCHEMA_VERSION",
    "Disclosure",
    "Envelope",
    "Packed",
    "decode_envelope",
    "decode_report",
    "decode_task",
    "encode_report",
    "encode_task",
    "readdress",
    "show",
]
