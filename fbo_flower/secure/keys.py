"""Keys, boxes and masks, from Flower's primitives where they are sound.

Flower's `generate_shared_key`, `encrypt`, `create_shares` and their counterparts are used as they are. Its
`pseudo_rand_gen` is not: it folds its seed to 32 bits and feeds a Mersenne Twister, so that whoever holds
a masked vector can try all masks; masks come from ChaCha20 here. `docs/adr/` has the reasons.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import urlsafe_b64encode
from collections.abc import Sequence

import numpy as np
from cryptography.exceptions import InvalidKey
from cryptography.fernet import InvalidToken
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from flwr.common.secure_aggregation.crypto.shamir import combine_shares, create_shares
from flwr.common.secure_aggregation.crypto.symmetric_encryption import decrypt, encrypt, generate_shared_key

from fbo_flower.errors import WireError
from fbo_flower.secure.fixed_point import Words

CURVE = ec.SECP384R1()  # Flower's
PRIVATE_BYTES, PUBLIC_BYTES, SEED_BYTES = 48, 49, 32


def new_private_key() -> bytes:
    """Return a private key, `PRIVATE_BYTES` long."""
    return ec.generate_private_key(CURVE).private_numbers().private_value.to_bytes(PRIVATE_BYTES)


def public_key(private: bytes) -> bytes:
    """Return the public key of a private one, `PUBLIC_BYTES` long."""
    key = ec.derive_private_key(int.from_bytes(private), CURVE).public_key()
    return key.public_bytes(Encoding.X962, PublicFormat.CompressedPoint)


def is_public_key(data: bytes) -> bool:
    """Return whether these bytes are a point of the curve."""
    try:
        ec.EllipticCurvePublicKey.from_encoded_point(CURVE, data)
    except ValueError:
        return False
    return len(data) == PUBLIC_BYTES


def agree(private: bytes, public: bytes) -> bytes:
    """Return the key that two agents share; both get the same. WireError if `public` is no key."""
    own = ec.derive_private_key(int.from_bytes(private), CURVE)
    try:
        return generate_shared_key(own, ec.EllipticCurvePublicKey.from_encoded_point(CURVE, public))
    except (ValueError, InvalidKey) as error:
        raise WireError("keys: expected points of the curve", "content") from error


def derive(key: bytes, purpose: bytes, label: bytes) -> bytes:
    """Return `SEED_BYTES` that nobody can tell without the key, others for every purpose and label."""
    return hmac.digest(key, purpose + b"\0" + label, "sha256")


def expand(seed: bytes, size: int) -> Words:
    """Return a mask `(size, 2)` from a seed."""
    stream = Cipher(algorithms.ChaCha20(seed, bytes(16)), mode=None).encryptor().update(bytes(16 * size))
    return np.frombuffer(stream, dtype="<u8").reshape(size, 2).astype(np.uint64)


def commit(seed: bytes) -> bytes:
    """Return what binds its sender to a seed without telling it."""
    return hashlib.sha256(b"fbo-flower secure sum" + seed).digest()


def seal(key: bytes, content: bytes) -> bytes:
    """Return content that only the holders of a derived key can read or change."""
    return encrypt(_fernet(key), content)


def unseal(key: bytes, box: bytes) -> bytes:
    """Undo `seal`; WireError if it was not made with this key."""
    try:
        return decrypt(_fernet(key), box)
    except InvalidToken as error:
        raise WireError("boxes: expected a share that a neighbour sealed", "content") from error


def split(secret: bytes, threshold: int, number: int) -> list[bytes]:
    """Return shares of a secret, any `threshold` of which bring it back."""
    return create_shares(secret, threshold, number)


def join(shares: Sequence[bytes]) -> bytes | None:
    """Return the secret behind `threshold` shares; None if they do not fit together."""
    try:
        return combine_shares(list(shares))
    except (ValueError, IndexError):
        return None


def _fernet(key: bytes) -> bytes:
    return urlsafe_b64encode(key)
