"""Keys, boxes, masks, cards and statements; what a server learns that tells agents different things.

The proof is by enumeration for groups of up to five. The model: an honest member reveals, by the list of
members that it was told, for each other member either a share of its private mask (the member is in) or the
pairwise mask (it is out). The server has all shares and masks of the members that work for it.
"""

from itertools import combinations, product

import numpy as np
import pytest
from flwr.common.secure_aggregation.secaggplus_utils import pseudo_rand_gen

from fbo_flower.errors import WireError
from fbo_flower.secure import keys
from fbo_flower.secure.keys import CARD_BYTES, threshold


def new_card(identity=None, private=None):
    return keys.make_card(identity or keys.new_identity(), private or keys.new_private_key())


PRIVATE = [keys.new_private_key() for _ in range(3)]
IDENTITY = keys.new_identity()


def test_a_card_holds_both_keys_and_is_signed_and_a_changed_one_is_none():
    card, other = new_card(IDENTITY, PRIVATE[0]), new_card()
    assert len(card) == CARD_BYTES == 128
    assert keys.is_card(card)
    assert keys.identity_of(card) == keys.public_identity(IDENTITY)
    assert keys.agreement_of(card) == keys.public_key(PRIVATE[0])
    assert new_card(IDENTITY, PRIVATE[0]) == card
    flipped = [bytes(b ^ (i == place) for i, b in enumerate(card)) for place in (0, 40, 100, 127)]
    swapped = keys.identity_of(card) + other[keys.IDENTITY_BYTES :]
    for wrong in (*flipped, swapped, b"", bytes(CARD_BYTES), card[:-1], card + b"x"):
        assert not keys.is_card(wrong)
    assert keys.are_distinct([new_card(), new_card()])
    assert not keys.are_distinct([new_card(IDENTITY) for _ in range(2)])
    assert not keys.are_distinct([new_card(None, PRIVATE[0]) for _ in range(2)])


def test_labels_and_statements_differ_by_what_they_say_and_not_by_the_order_of_members():
    cards = [new_card() for _ in range(4)]
    named = (b"study", 1, cards), (b"study1", 1, cards), (b"study", 2, cards), (b"study", 1, cards[:3])
    assert len({keys.label(*of) for of in named}) == 4
    assert keys.label(b"study", 1, cards[::-1]) == keys.label(b"study", 1, cards)
    made = {keys.statement(label, cards[:n]) for label in (b"1" * 32, b"2" * 32) for n in (1, 2, 3)}
    assert len(made) == 6
    assert keys.statement(b"1" * 32, cards) == keys.statement(b"1" * 32, cards[::-1])


def test_two_agents_agree_and_a_third_does_not_and_what_is_no_point_of_the_curve_is_no_key():
    first, second, third = PRIVATE
    shared = keys.agree(first, keys.public_key(second))
    assert shared == keys.agree(second, keys.public_key(first))
    assert shared != keys.agree(third, keys.public_key(first))
    for bad in (b"", bytes(49), b"\x02" + b"\xff" * 48, bytes(97)):
        assert not keys.is_public_key(bad)
        with pytest.raises(WireError, match="points of the curve"):
            keys.agree(first, bad)


def test_a_box_that_was_touched_or_is_anothers_is_refused():
    key, other = (keys.derive(PRIVATE[0], b"box", label) for label in (b"1", b"2"))
    box = bytearray(keys.seal(key, b"share"))
    assert keys.unseal(key, bytes(box)) == b"share"
    touched = bytes(b ^ (i == 20) for i, b in enumerate(box))
    for wrong_key, wrong in ((other, bytes(box)), (key, touched)):
        with pytest.raises(WireError, match="sealed"):
            keys.unseal(wrong_key, wrong)


def test_seeds_differ_by_key_purpose_and_label():
    made = {keys.derive(k, p, n) for k in PRIVATE for p in (b"a", b"b") for n in (b"1", b"2")}
    assert len(made) == 12
    assert {len(seed) for seed in made} == {keys.SEED_BYTES}


def test_masks_are_uniform_and_repeat_with_their_seed():
    seed = keys.derive(b"k", b"mask", b"1")
    words = keys.expand(seed, 50_000)
    np.testing.assert_array_equal(words, keys.expand(seed, 50_000))
    for column in words.T:
        counts = np.bincount((column >> np.uint64(56)).astype(int), minlength=256)
        chi_square = float(((counts - counts.mean()) ** 2 / counts.mean()).sum())
        assert 150 < chi_square < 400  # 255 degrees of freedom, s.d. 23
    assert abs(np.corrcoef(words.T.astype(np.float64))[0, 1]) < 0.02


def test_why_flowers_generator_is_not_used_two_seeds_give_one_mask():
    one, other = bytes(range(32)), bytes(range(4, 32)) + bytes(range(4))  # words in another order
    np.testing.assert_array_equal(*(pseudo_rand_gen(seed, 2**32, [(50,)])[0] for seed in (one, other)))
    assert keys.expand(one, 1).tolist() != keys.expand(other, 1).tolist()


@pytest.mark.parametrize("least", [2, 3, 5, 20])
def test_the_threshold_is_above_two_thirds_and_two_lists_need_more_helpers_than_matter(least):
    for size in range(least, keys.largest_group(least) + 1):
        t = threshold(size, least)
        assert least <= t <= size
        assert 3 * t > 2 * size
        assert 2 * t - size > least - 2, "a sum with least - 1 helpers in it hides nothing anyway"
    left = {2: 2, 3: 3, 5: 6, 20: 26}
    assert size - t == left.get(least, size - t), "nearly a third of a largest group may leave"


# -- a server that tells agents different things -------------------------------------------------------


def sums_known(told, speaks, num_helpers, needed):
    """Return the smallest sets of honest members whose sums the server can unmask.

    A set can be unmasked if the private masks of its members are known, and every pairwise mask with an
    honest member outside of it.

    Parameters
    ----------
    told : honest member -> the members that are in, as the server told it
    speaks : honest members that reveal
    needed : number of shares that recover a private mask
    """
    honest = set(told)

    def pair_known(a, b):
        return (a in speaks and b not in told[a]) or (b in speaks and a not in told[b])

    sets, left = [], set(honest)
    while left:
        found = {left.pop()}
        border = set(found)
        while border:
            agent = border.pop()
            new = {b for b in left if not pair_known(agent, b)}
            left -= new
            found |= new
            border |= new
        shares = {a: num_helpers + sum(a in told[b] for b in speaks if b != a) for a in found}
        if all(count >= needed for count in shares.values()):
            sets.append(frozenset(found))
    return sets


def lists(member, everybody, at_least):
    """Return all lists of members that an honest member would sign: it is in, and so are enough others."""
    others = [m for m in everybody if m != member]
    return [
        frozenset((member, *chosen))
        for size in range(at_least - 1, len(everybody))
        for chosen in combinations(others, size)
    ]


def attacks(size, num_helpers, least):
    """Yield the sums that the server knows, for everything that it can tell the honest members.

    Which members help is no matter: the lists of all assignments are the same up to names.
    """
    everybody, t = range(size), threshold(size, least)
    honest = range(num_helpers, size)
    for said in product(*([*lists(m, everybody, t), None] for m in honest)):  # None: it is told nothing
        told = {m: there for m, there in zip(honest, said, strict=True)}
        signers = {
            there: sum(m < num_helpers or told[m] == there for m in there) for there in {*said} - {None}
        }
        speaks = {m for m in honest if told[m] is not None and signers[told[m]] >= t}
        if speaks:
            lists_told = {m: there or frozenset() for m, there in told.items()}
            yield t, speaks, sums_known(lists_told, speaks, num_helpers, t - 1)


BELOW = [
    (size, helpers, least)
    for size in range(2, 6)
    for least in range(2, size + 1)
    for helpers in range(min(2 * threshold(size, least) - size, size - 1))
]


@pytest.mark.parametrize(("size", "helpers", "least"), BELOW)
def test_below_the_bound_the_server_learns_one_sum_of_enough_honest_agents(size, helpers, least):
    found = 0
    for t, speaks, known in attacks(size, helpers, least):
        found += len(known)
        assert len(known) <= 1
        assert all(len(one) >= t - helpers and speaks <= one for one in known)
    assert found > 0, "the sum that the server may learn"


@pytest.mark.parametrize(("size", "helpers", "least"), [(4, 2, 2), (5, 3, 2), (6, 4, 4)])
def test_at_the_bound_there_is_an_attack(size, helpers, least):
    assert helpers == 2 * threshold(size, least) - size
    assert any(len(known) > 1 for _, _, known in attacks(size, helpers, least))
