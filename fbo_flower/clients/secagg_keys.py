"""The key pair with which an agent takes part in secure sums; it is made once and stored in its memory."""

from __future__ import annotations

from fbo_flower.algorithms.records import AnyArray
from fbo_flower.clients.memory import Memory

_NOTE = "secure-key"


def own_key(memory: Memory) -> tuple[bytes, bytes]:
    """Return the agent's private key (48 bytes) and public key (49 bytes); make them if there are none."""
    from fbo_flower.secure import keys  # imported late: only secure sums need it

    note = memory.note(_NOTE)
    if "private" in note:
        private = bytes.fromhex(str(note["private"]))
    else:
        private = keys.new_private_key()
        memory.put_note(_NOTE, {"private": private.hex()})
    return private, keys.public_key(private)


def identity(memory: Memory, study: str) -> dict[str, AnyArray]:
    """Return the arrays that the agent's state must hold in a study with secure sums."""
    from fbo_flower.algorithms.secure_aggregation import identity as identity_arrays

    return identity_arrays(own_key(memory)[0], study)
