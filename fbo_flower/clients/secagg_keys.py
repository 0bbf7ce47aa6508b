"""The keys with which an agent takes part in secure sums; they are made once and stored in its memory."""

from __future__ import annotations

from typing import cast

from fbo_flower.algorithms.records import AnyArray
from fbo_flower.clients.memory import Memory
from fbo_flower.errors import WireError

_NOTE = "secure-key"


def own_keys(memory: Memory) -> tuple[bytes, bytes]:
    """Return the agent's private identity key (32 bytes) and private agreement key (48 bytes).

    Missing keys are made and stored.
    """
    from fbo_flower.secure import keys  # imported late: only secure sums need it

    note = memory.note(_NOTE)
    identity, private = (bytes.fromhex(str(note.get(name, ""))) for name in ("identity", "private"))
    if not identity or not private:  # a journal from before has no identity key
        identity, private = identity or keys.new_identity(), private or keys.new_private_key()
        memory.put_note(_NOTE, {"identity": identity.hex(), "private": private.hex()})
    return identity, private


def own_card(memory: Memory) -> bytes:
    """Return the agent's public keys as it sends them at registration: `CARD_BYTES` bytes."""
    from fbo_flower.secure.members import make_card

    return make_card(*own_keys(memory))


def public_identity(memory: Memory) -> bytes:
    """Return the agent's public identity key (32 bytes), which other operators list in `secure_peers`."""
    from fbo_flower.secure.members import identity_of

    return identity_of(own_card(memory))


def identity(memory: Memory, study: str) -> dict[str, AnyArray]:
    """Return the arrays that the agent's state must hold in a study with secure sums.

    Raises
    ------
    WireError
        If the memory has forgotten the study, and with it which reports were masked.
    """
    from fbo_flower.algorithms.secure_member import identity_arrays

    if study in cast(list[str], memory.note("forgotten").get("studies", [])):
        raise WireError(
            f"study: expected one that this agent has not forgotten, got {study[:100]!r}; start a new study, "
            "or give the agent a `journal` in node_config, which keeps all studies"
        )

    identity, private = own_keys(memory)
    return identity_arrays(private, identity, study)
