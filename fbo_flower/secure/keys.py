"""Keys, sealed boxes and masks for secure sums, and the cards, the threshold and the statement of members.

Shares are made in `rounds.py`, keys are agreed on X25519, boxes are sealed with ChaCha20-Poly1305, and masks
come from ChaCha20: `docs/adr/` says why Flower's own are not used. Agents keep their keys for a whole study,
so what follows from keys alone is kept in memory; two agents of one process agree once.

Every agent has a key pair for key agreement and an identity key pair, which signs. Its card holds both public
keys, the agreement key signed. Before members reveal anything, they sign a statement about which members have
sent their numbers [Bonawitz2017, Sec. 6, active adversaries].

Notation: a group has `n` members, `c` of them work for the server, and `t` members must sign the same
statement. An honest agent signs one statement per sum. Two different statements with `t` signatures each need
`2 (t - c) <= n - c`, that is `c >= 2 t - n`.
"""

from __future__ import annotations

import functools
import hashlib
import hmac
import secrets
from collections.abc import Collection, Sequence

import numpy as np
from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from fbo_flower.errors import WireError
from fbo_flower.secure.fixed_point import Words

PRIVATE_BYTES = PUBLIC_BYTES = SEED_BYTES = 32
_KEPT, _KEPT_PAIRS = 4096, 2**15  # results in memory, those of pairs of agents apart
_SHORT = 1024  # numbers in a mask that is kept
_NONCE_BYTES, _TAG_BYTES = 12, 16
SEAL_BYTES = _NONCE_BYTES + _TAG_BYTES  # by which a sealed content is longer
IDENTITY_BYTES, SIGNATURE_BYTES = 32, 64  # Ed25519: a private or public key, and a signature


def new_private_key() -> bytes:
    """Return a new random private key."""
    return X25519PrivateKey.generate().private_bytes_raw()


@functools.lru_cache(maxsize=_KEPT)
def public_key(private: bytes) -> bytes:
    """Return the public key of a private key: `PUBLIC_BYTES` bytes."""
    return _private_key(private).public_key().public_bytes_raw()


@functools.lru_cache(maxsize=_KEPT)
def is_public_key(data: bytes) -> bool:
    """Return whether these bytes are a public key: others agree on the same secret with everybody."""
    try:
        agree(bytes(PRIVATE_BYTES), data)
    except WireError:
        return False
    return True


def new_identity() -> bytes:
    """Return a new random private identity key of `IDENTITY_BYTES` bytes, which signs."""
    return Ed25519PrivateKey.generate().private_bytes_raw()


def public_identity(identity: bytes) -> bytes:
    """Return the public identity key of a private one: `IDENTITY_BYTES` bytes."""
    return _identity_key(identity).public_key().public_bytes_raw()


def sign(identity: bytes, content: bytes) -> bytes:
    """Return the signature of a content with a private identity key: `SIGNATURE_BYTES` bytes."""
    return _identity_key(identity).sign(content)


_identity_key = functools.lru_cache(maxsize=_KEPT)(Ed25519PrivateKey.from_private_bytes)


@functools.lru_cache(maxsize=_KEPT)
def is_signed(public: bytes, content: bytes, signature: bytes) -> bool:
    """Return whether a signature of a content is valid for a public identity key."""
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, content)
    except (ValueError, InvalidSignature):
        return False
    return True


_AGREED: dict[bytes, bytes] = {}  # both public keys, the smaller one first -> what their owners share


def agree(private: bytes, public: bytes) -> bytes:
    """Return the key that two agents share (both compute the same); WireError if `public` is not a key."""
    both = b"".join(sorted((public_key(private), public)))
    if both in _AGREED:
        return _AGREED[both]
    try:
        secret = _private_key(private).exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError as error:  # another length, or a point of small order
        raise WireError("keys: expected points of the curve", "content") from error
    if len(_AGREED) >= _KEPT_PAIRS:
        _AGREED.clear()
    return _AGREED.setdefault(both, hashlib.sha256(b"fbo-flower agreement\0" + secret + both).digest())


_private_key = functools.lru_cache(maxsize=_KEPT)(X25519PrivateKey.from_private_bytes)


def derive(key: bytes, purpose: bytes, label: bytes) -> bytes:
    """Return `SEED_BYTES` pseudorandom bytes for a purpose and label; unpredictable without the key."""
    return hmac.digest(key, purpose + b"\0" + label, "sha256")


def expand(seed: bytes, size: int) -> Words:
    """Return the mask `(size, 2)` that a seed generates with ChaCha20."""
    stream = Cipher(algorithms.ChaCha20(seed, bytes(16)), mode=None).encryptor().update(_zeros(16 * size))
    return np.frombuffer(stream, dtype="<u8").reshape(size, 2).astype(np.uint64, copy=False)


def pair_mask(shared: bytes, label: bytes, size: int) -> Words:
    """Return the mask `(size, 2)` of two agents that share a key, in the sum with this label."""
    seed = derive(shared, b"mask", label)
    return (_kept_mask if size <= _SHORT else expand)(seed, size)


_kept_mask = functools.lru_cache(maxsize=1024)(expand)  # both members need it, often in one process
_zeros = functools.lru_cache(maxsize=4)(bytes)


def commit(seed: bytes) -> bytes:
    """Return a commitment to a seed: its hash, which does not reveal the seed."""
    return hashlib.sha256(b"fbo-flower secure sum" + seed).digest()


def seal(key: bytes, content: bytes) -> bytes:
    """Return the content encrypted and authenticated with a derived key."""
    nonce = secrets.token_bytes(_NONCE_BYTES)  # an agent that is killed may seal another share for this sum
    return nonce + ChaCha20Poly1305(key).encrypt(nonce, content, None)


def unseal(key: bytes, box: bytes) -> bytes:
    """Return the content of a sealed box; WireError if it was not sealed with this key."""
    try:
        return ChaCha20Poly1305(key).decrypt(box[:_NONCE_BYTES], box[_NONCE_BYTES:], None)
    except (InvalidTag, ValueError) as error:  # another box, or one that is too short
        raise WireError("boxes: expected a share that a neighbour sealed", "content") from error


# -- who is in a sum -------------------------------------------------------------------------------

_KEYS = IDENTITY_BYTES + PUBLIC_BYTES
CARD_BYTES = _KEYS + SIGNATURE_BYTES
_CARD, _STATEMENT = b"fbo-flower card\0", b"fbo-flower statement\0"


def threshold(size: int, least: int) -> int:
    """Return `t`, the number of members of a group of `size` that must sign the same statement.

    It is more than two thirds of the group and at least `least`, the fewest agents of a sum. Up to `least -
    2` members that work for the server are fewer than `2 t - n`. With `least - 1`, a sum of `least` hides
    nothing.
    """
    return max(least, 2 * size // 3 + 1, (size + least) // 2)


def largest_group(least: int) -> int:
    """Return the largest number of members of a group."""
    return 4 * least


@functools.lru_cache(maxsize=4096)
def make_card(identity: bytes, private: bytes) -> bytes:
    """Return an agent's card: public identity key, public agreement key, signature of the latter.

    Parameters
    ----------
    identity, private : the agent's private identity key and private agreement key
    """
    public = public_key(private)
    return public_identity(identity) + public + sign(identity, _CARD + public)


def identity_of(card: bytes) -> bytes:
    """Return the public identity key of a card."""
    return card[:IDENTITY_BYTES]


def agreement_of(card: bytes) -> bytes:
    """Return the public agreement key of a card."""
    return card[IDENTITY_BYTES:_KEYS]


@functools.lru_cache(maxsize=4096)
def is_card(card: bytes) -> bool:
    """Return whether the agreement key of a card is valid and signed with its identity key."""
    public = agreement_of(card)
    return (
        len(card) == CARD_BYTES
        and is_public_key(public)
        and is_signed(identity_of(card), _CARD + public, card[_KEYS:])
    )


def are_distinct(cards: Sequence[bytes]) -> bool:
    """Return whether no key is on two cards."""
    return all(len({key(card) for card in cards}) == len(cards) for key in (identity_of, agreement_of))


def label(study: bytes, number: int, cards: Collection[bytes], content: bytes = b"") -> bytes:
    """Return the name of one sum of one group, from which all of its masks are derived.

    Agents that were told different members, or asked about something else, have different labels. Their
    masks do not cancel, and what one reveals does not help against the other.

    Parameters
    ----------
    study, number : study, and number of the sum in it
    cards : of all members, in any order
    content : digest of what all members are asked about
    """
    digest = hashlib.sha256(len(study).to_bytes(4) + study + number.to_bytes(8))
    for card in sorted(cards):
        digest.update(card[:_KEYS])
    digest.update(content)
    return digest.digest()


def statement(sum_label: bytes, there: Collection[bytes]) -> bytes:
    """Return what members sign: which members of the group `sum_label` have sent their numbers.

    Parameters
    ----------
    there : cards of these members, in any order
    """
    return _STATEMENT + sum_label + b"".join(sorted(identity_of(card) for card in there))
