"""Keys, sealed boxes and masks for secure sums, built on Flower's cryptographic primitives.

Flower's `encrypt` and `decrypt` are used unchanged. Its `create_shares` multiplies bit by bit, in a thread
for each block, so shares are made in `shamir.py`. Keys are agreed on X25519 instead of its P-384, which takes
fifteen times as long: groups may change from sum to sum, and each new pair agrees. Its `pseudo_rand_gen` is
not used, because it reduces the seed to 32 bits and feeds a Mersenne Twister: anyone with a masked vector
could try all masks. Masks here come from ChaCha20. `docs/adr/` has the reasons.

Agents keep their keys for a whole study. What follows from keys alone is therefore computed once and kept in
memory, beside the private keys from which it follows.
"""

from __future__ import annotations

import functools
import hashlib
import hmac
from base64 import urlsafe_b64encode

import numpy as np
from cryptography.exceptions import InvalidSignature
from cryptography.fernet import InvalidToken
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from flwr.common.secure_aggregation.crypto.symmetric_encryption import decrypt, encrypt

from fbo_flower.errors import WireError
from fbo_flower.secure.fixed_point import Words

PRIVATE_BYTES = PUBLIC_BYTES = SEED_BYTES = 32
_KEPT, _KEPT_PAIRS = 4096, 2**15  # results in memory, those of pairs of agents apart
IDENTITY_BYTES, SIGNATURE_BYTES = 32, 64  # Ed25519: a private or public key, and a signature


def new_private_key() -> bytes:
    """Return a new random private key of `PRIVATE_BYTES` bytes."""
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


@functools.lru_cache(maxsize=_KEPT_PAIRS)
def agree(private: bytes, public: bytes) -> bytes:
    """Return the key that two agents share (both compute the same); WireError if `public` is not a key."""
    try:
        secret = _private_key(private).exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError as error:  # another length, or a point of small order
        raise WireError("keys: expected points of the curve", "content") from error
    both = b"".join(sorted((public_key(private), public)))
    return hashlib.sha256(b"fbo-flower agreement\0" + secret + both).digest()


_private_key = functools.lru_cache(maxsize=_KEPT)(X25519PrivateKey.from_private_bytes)


def derive(key: bytes, purpose: bytes, label: bytes) -> bytes:
    """Return `SEED_BYTES` pseudorandom bytes for a purpose and label; unpredictable without the key."""
    return hmac.digest(key, purpose + b"\0" + label, "sha256")


def expand(seed: bytes, size: int) -> Words:
    """Return the mask `(size, 2)` that a seed generates with ChaCha20."""
    stream = Cipher(algorithms.ChaCha20(seed, bytes(16)), mode=None).encryptor().update(_zeros(16 * size))
    return np.frombuffer(stream, dtype="<u8").reshape(size, 2).astype(np.uint64, copy=False)


_zeros = functools.lru_cache(maxsize=4)(bytes)


def commit(seed: bytes) -> bytes:
    """Return a commitment to a seed: its hash, which does not reveal the seed."""
    return hashlib.sha256(b"fbo-flower secure sum" + seed).digest()


def seal(key: bytes, content: bytes) -> bytes:
    """Return the content encrypted and authenticated with a derived key."""
    return encrypt(urlsafe_b64encode(key), content)


def unseal(key: bytes, box: bytes) -> bytes:
    """Return the content of a sealed box; WireError if it was not sealed with this key."""
    try:
        return decrypt(urlsafe_b64encode(key), box)
    except InvalidToken as error:
        raise WireError("boxes: expected a share that a neighbour sealed", "content") from error
