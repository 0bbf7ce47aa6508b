"""Derive random generators from a seed and keys, so that no generator state is stored.

`generator(seed, "propose", agent, trial)` always returns the same generator, so a repeated task repeats its
draws. Keys are hashed, so the draws of different agents are independent whatever their names. The draws
depend on NumPy's PCG64 and on the encoding below; a golden test checks that they do not change.
"""

from __future__ import annotations

import hashlib
import secrets

import numpy as np

from fbo_flower.errors import ConfigError

ENTROPY_BITS = 128


def fresh_entropy() -> int:
    """Return a new secret seed of 128 bits from the operating system, for agents."""
    return secrets.randbits(ENTROPY_BITS)


def generator(seed: int, *keys: str | int) -> np.random.Generator:
    """Return the generator derived from `seed` and `keys`; equal arguments give equal draws.

    Parameters
    ----------
    seed : `0 <= seed < 2**128`
    keys : purpose of the draws, e.g. a role, an agent, a trial; `1` and `"1"` differ, and so do
        `("a", "bc")` and `("ab", "c")`
    """
    if not 0 <= seed < 2**ENTROPY_BITS:
        raise ConfigError(f"seed: expected an integer in [0, 2**{ENTROPY_BITS}), got {seed}")
    encoded = []  # type, length and content of each key, so that no two lists of keys look alike
    for key in keys:
        if isinstance(key, str):
            kind, content = b"s", key.encode()
        elif isinstance(key, (int, np.integer)) and not isinstance(key, bool):
            kind, content = b"i", b"%d" % key
        else:
            raise ConfigError(f"key: expected text or an integer, got {key!r} of type {type(key).__name__}")
        encoded.append(b"%b%d:%b" % (kind, len(content), content))
    digest = hashlib.sha256(b"".join(encoded)).digest()
    # equals SeedSequence(seed, spawn_key=the digest's words), in half the time
    words = np.frombuffer(int(seed).to_bytes(ENTROPY_BITS // 8, "little") + digest, dtype="<u4")
    sequence = np.random.SeedSequence(words.astype(np.uint32, copy=False))
    return np.random.Generator(np.random.PCG64(sequence))
