"""Keys, sealed boxes and masks for secure sums, built on Flower's cryptographic primitives.

Flower's `generate_shared_key`, `encrypt` and `decrypt` are used unchanged. Shares are those of its
`create_shares`, made faster (`shamir.py`). Its `pseudo_rand_gen` is not used, because it reduces the seed to
32 bits and feeds a Mersenne Twister: anyone with a masked vector could try all masks. Masks here come from
ChaCha20. `docs/adr/` has the reasons.

Agents keep their keys for a whole study. What follows from keys alone is therefore computed once and kept in
memory, beside the private keys from which it follows.
"""

from __future__ import annotations

import functools
import hashlib
import hmac
from base64 import urlsafe_b64encode
from collections.abc import Sequence

import numpy as np
from cryptography.exceptions import InvalidKey, InvalidSignature
from cryptography.fernet import InvalidToken
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from flwr.common.secure_aggregation.crypto.symmetric_encryption import decrypt, encrypt, generate_shared_key

from fbo_flower.errors import WireError
from fbo_flower.secure import shamir
from fbo_flower.secure.fixed_point import Words

CURVE = ec.SECP384R1()  # the curve Flower uses
PRIVATE_BYTES, PUBLIC_BYTES, SEED_BYTES = 48, 49, 32
_KEPT, _KEPT_PAIRS = 4096, 2**15  # results in memory, those of pairs of agents apart
IDENTITY_BYTES, SIGNATURE_BYTES = 32, 64  # Ed25519: a private or public key, and a signature


def new_private_key() -> bytes:
    """Return a new random private key of `PRIVATE_BYTES` bytes."""
    return ec.generate_private_key(CURVE).private_numbers().private_value.to_bytes(PRIVATE_BYTES)


@functools.lru_cache(maxsize=_KEPT)
def public_key(private: bytes) -> bytes:
    """Return the public key of a private key: `PUBLIC_BYTES` bytes."""
    return _private_key(private).public_key().public_bytes(Encoding.X962, PublicFormat.CompressedPoint)


@functools.lru_cache(maxsize=_KEPT)
def is_public_key(data: bytes) -> bool:
    """Return whether these bytes encode a point of the curve."""
    try:
        ec.EllipticCurvePublicKey.from_encoded_point(CURVE, data)
    except ValueError:
        return False
    return len(data) == PUBLIC_BYTES


def new_identity() -> bytes:
    """Return a new random private identity key of `IDENTITY_BYTES` bytes, which signs."""
    return Ed25519PrivateKey.generate().private_bytes_raw()


def public_identity(identity: bytes) -> bytes:
    """Return the public identity key of a private one: `IDENTITY_BYTES` bytes."""
    return _identity_key(identity).public_key().public_bytes_raw()


def sign(identity: bytes, content: bytes) -> bytes:
    """Return the signature of a content with a private identity key: `SIGNATURE_BYTES` bytes."""
    return _identity_key(identity).sign(content)


@functools.lru_cache(maxsize=_KEPT)
def _identity_key(identity: bytes) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(identity)


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
        other = ec.EllipticCurvePublicKey.from_encoded_point(CURVE, public)
        return generate_shared_key(_private_key(private), other)
    except (ValueError, InvalidKey) as error:
        raise WireError("keys: expected points of the curve", "content") from error


@functools.lru_cache(maxsize=_KEPT)
def _private_key(private: bytes) -> ec.EllipticCurvePrivateKey:
    return ec.derive_private_key(int.from_bytes(private), CURVE)


def derive(key: bytes, purpose: bytes, label: bytes) -> bytes:
    """Return `SEED_BYTES` pseudorandom bytes for a purpose and label; unpredictable without the key."""
    return hmac.digest(key, purpose + b"\0" + label, "sha256")


def expand(seed: bytes, size: int) -> Words:
    """Return the mask `(size, 2)` that a seed generates with ChaCha20."""
    stream = Cipher(algorithms.ChaCha20(seed, bytes(16)), mode=None).encryptor().update(_zeros(16 * size))
    return np.frombuffer(stream, dtype="<u8").reshape(size, 2).astype(np.uint64, copy=False)


@functools.lru_cache(maxsize=4)
def _zeros(size: int) -> bytes:
    return bytes(size)


def commit(seed: bytes) -> bytes:
    """Return a commitment to a seed: its hash, which does not reveal the seed."""
    return hashlib.sha256(b"fbo-flower secure sum" + seed).digest()


def seal(key: bytes, content: bytes) -> bytes:
    """Return the content encrypted and authenticated with a derived key."""
    return encrypt(_fernet(key), content)


def unseal(key: bytes, box: bytes) -> bytes:
    """Return the content of a sealed box; WireError if it was not sealed with this key."""
    try:
        return decrypt(_fernet(key), box)
    except InvalidToken as error:
        raise WireError("boxes: expected a share that a neighbour sealed", "content") from error


def split(secret: bytes, threshold: int, number: int) -> list[bytes]:
    """Return `number` shares of a secret; any `threshold` of them recover it."""
    return shamir.split(secret, threshold, number)


def join(shares: Sequence[bytes]) -> bytes | None:
    """Return the secret recovered from `threshold` shares; None if the shares are inconsistent."""
    try:
        return shamir.join(shares)
    except ValueError:
        return None


def _fernet(key: bytes) -> bytes:
    return urlsafe_b64encode(key)
