"""Random generators that are derived from names instead of stored.

A repeated task asks for the same generator and repeats its draws: `generator(seed, "propose", agent, trial)`.
Keys are hashed, so that agents' draws are independent whatever their names and numbers; the draws depend on
NumPy's PCG64 and on the encoding below, which a golden test holds fixed.
"""

from __future__ import annotations

import hashlib
import secrets

import numpy as np

from fbo_flower.errors import ConfigError

ENTROPY_BITS = 128


def fresh_entropy() -> int:
    """Take a new seed of 128 bits from the operating system: for devices, whose seed nobody else may know."""
    return secrets.randbits(ENTROPY_BITS)


def generator(seed: int, *keys: str | int) -> np.random.Generator:
    """Derive the generator that belongs to `seed` and `keys`; equal arguments give equal draws.

    Parameters
    ----------
    seed : `0 <= seed < 2**128`
    keys : what the draws are for, e.g. a role, an agent, a trial; `1` and `"1"` differ, `("a", "bc")` and
        `("ab", "c")` too

    Raises
    ------
    ConfigError
        If the seed is out of range or a key is neither text nor an integer.
    """
    if not 0 <= seed < 2**ENTROPY_BITS:
        raise ConfigError(f"seed: expected an integer in [0, 2**{ENTROPY_BITS}), got {seed}")
    digest = hashlib.sha256(b"".join([_encode(key) for key in keys])).digest()
    # the same as SeedSequence(seed, spawn_key=the digest's words) assembles, in half the time
    words = np.frombuffer(int(seed).to_bytes(ENTROPY_BITS // 8, "little") + digest, dtype="<u4")
    sequence = np.random.SeedSequence(words.astype(np.uint32, copy=False))
    return np.random.Generator(np.random.PCG64(sequence))


def _encode(key: str | int) -> bytes:
    """Type, length, content: no two sequences of keys share their concatenated encodings."""
    if isinstance(key, str):
        tag, content = b"s", key.encode()
    elif isinstance(key, (int, np.integer)) and not isinstance(key, bool):
        tag, content = b"i", str(int(key)).encode()
    else:
        raise ConfigError(f"key: expected text or an integer, got {key!r} of type {type(key).__name__}")
    return tag + str(len(content)).encode() + b":" + content
