"""The key by which an agent takes part in secure sums; it is made once and stays in its memory."""

from __future__ import annotations

from fbo_flower.algorithms.records import AnyArray
from fbo_flower.clients.memory import Memory

_NOTE = "secure-key"


def own_key(memory: Memory) -> tuple[bytes, bytes]:
    """Return the private and the public key, 48 and 49 bytes."""
    from fbo_flower.secure import keys  # a device without secure sums has no use for it

    known = memory.note(_NOTE)
    if "private" in known:
        private = bytes.fromhex(str(known["private"]))
    else:
        private = keys.new_private_key()
        memory.put_note(_NOTE, {"private": private.hex()})
    return private, keys.public_key(private)


def identity(memory: Memory, study: str) -> dict[str, AnyArray]:
    """Return what the agent's state of a study with secure sums must hold."""
    from fbo_flower.algorithms.secure_aggregation import identity as arrays

    return arrays(own_key(memory)[0], study)
