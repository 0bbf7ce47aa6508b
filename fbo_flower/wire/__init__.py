"""Encode tasks and reports as Flower messages, and check every message that arrives."""

from fbo_flower.wire.checks import MAX_TEXT, MAX_TRIALS, checked_arrays, show
from fbo_flower.wire.codec import (
    MAX_TASK,
    SCHEMA_VERSION,
    Disclosure,
    Envelope,
    Packed,
    decline,
    declines,
    decode_envelope,
    decode_report,
    decode_task,
    encode_report,
    encode_task,
)

__all__ = [
    "MAX_TASK",
    "MAX_TEXT",
    "MAX_TRIALS",
    "SCHEMA_VERSION",
    "Disclosure",
    "Envelope",
    "Packed",
    "checked_arrays",
    "decline",
    "declines",
    "decode_envelope",
    "decode_report",
    "decode_task",
    "encode_report",
    "encode_task",
    "show",
]
