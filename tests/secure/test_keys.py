"""Keys, boxes and masks."""

import numpy as np
import pytest
from flwr.common.secure_aggregation.secaggplus_utils import pseudo_rand_gen

from fbo_flower.errors import WireError
from fbo_flower.secure import keys


@pytest.fixture(scope="module")
def pair():
    return [keys.new_private_key() for _ in range(2)]


def test_two_agents_agree_and_a_third_does_not(pair):
    first, second = pair
    shared = keys.agree(first, keys.public_key(second))
    assert shared == keys.agree(second, keys.public_key(first))
    assert shared != keys.agree(keys.new_private_key(), keys.public_key(first))
    assert [len(k) for k in (first, keys.public_key(first))] == [keys.PRIVATE_BYTES, keys.PUBLIC_BYTES]


@pytest.mark.parametrize("bad", [b"", bytes(49), b"\x02" + b"\xff" * 48, b"x" * 49, bytes(97)])
def test_what_is_no_point_of_the_curve_is_no_key(bad, pair):
    assert not keys.is_public_key(bad)
    with pytest.raises(WireError, match="points of the curve"):
        keys.agree(pair[0], bad)


def test_a_box_that_was_touched_is_refused(pair):
    key = keys.derive(pair[0], b"box", b"1")
    box = bytearray(keys.seal(key, b"share"))
    assert keys.unseal(key, bytes(box)) == b"share"
    with pytest.raises(WireError, match="sealed"):
        keys.unseal(keys.derive(pair[0], b"box", b"2"), bytes(box))
    box[20] ^= 1
    with pytest.raises(WireError, match="sealed"):
        keys.unseal(key, bytes(box))


def test_seeds_differ_by_purpose_and_label(pair):
    made = {keys.derive(k, p, n) for k in pair for p in (b"a", b"b") for n in (b"1", b"2")}
    assert len(made) == 8
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
    masks = [pseudo_rand_gen(seed, 2**32, [(50,)])[0] for seed in (one, other)]
    np.testing.assert_array_equal(*masks)
    assert keys.expand(one, 1).tolist() != keys.expand(other, 1).tolist()
