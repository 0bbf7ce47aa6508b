"""Who is in a secure sum: the members' cards, the threshold, and the statement that they sign.

Every agent has a key pair for key agreement and an identity key pair, which signs. Its card holds both public
keys, and the agreement key is signed with the identity key. Before members reveal anything, they sign a
statement about which members have sent their numbers [Bonawitz2017, Sec. 6, active adversaries].

Notation: a group has `n` members, `c` of them work for the server, and `t` members must sign the same
statement. An honest agent signs one statement per sum. Two different statements with `t` signatures each need
`2 (t - c) <= n - c`, that is `c >= 2 t - n`.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Collection, Sequence

from fbo_flower.secure import keys

_KEYS = keys.IDENTITY_BYTES + keys.PUBLIC_BYTES
CARD_BYTES = _KEYS + keys.SIGNATURE_BYTES
_CARD, _STATEMENT = b"fbo-flower card\0", b"fbo-flower statement\0"


def threshold(size: int, least: int) -> int:
    """Return `t`, the number of members that must sign the same statement.

    It is more than two thirds of the group and at least `least`. Up to `least - 2` members that work
    for the server are fewer than `2 t - n`. With `least - 1` of them, a sum of `least` hides nothing anyway.

    Parameters
    ----------
    size : `n`, at least `least`
    least : smallest number of agents in a sum
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
    public = keys.public_key(private)
    return keys.public_identity(identity) + public + keys.sign(identity, _CARD + public)


def identity_of(card: bytes) -> bytes:
    """Return the public identity key of a card."""
    return card[: keys.IDENTITY_BYTES]


def agreement_of(card: bytes) -> bytes:
    """Return the public agreement key of a card."""
    return card[keys.IDENTITY_BYTES : _KEYS]


@functools.lru_cache(maxsize=4096)
def is_card(card: bytes) -> bool:
    """Return whether the agreement key of a card is valid and signed with its identity key."""
    public = agreement_of(card)
    return (
        len(card) == CARD_BYTES
        and keys.is_public_key(public)
        and keys.is_signed(identity_of(card), _CARD + public, card[_KEYS:])
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
