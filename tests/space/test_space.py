"""Search spaces: round trips, bins, conditions, the vectorised paths against a plain loop, JSON, errors."""

import copy
import itertools
import json
import math
import pickle
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fbo_flower.errors import ConfigError, WireError
from fbo_flower.numerics.categories import FIRST_CATEGORY
from fbo_flower.space import Categorical, Float, Int, Ordinal, SearchSpace
from fbo_flower.space.checks import show
from fbo_flower.space.parameters import is_continuous

SVM = {
    "C": Float(1e-3, 1e3, log=True),
    "kernel": Categorical(["rbf", "linear", "poly"]),
    "gamma": Float(1e-4, 10, log=True, active_when={"kernel": ["rbf", "poly"]}),
    "degree": Int(2, 5, active_when={"kernel": "poly"}),
    "coef0": Float(-1, 1, active_when={"degree": (3, 5)}),
    "tol": Ordinal([1e-4, 1e-3, 1e-2]),
    "iterations": Int(1, 1000, log=True),
}
GOLDEN_DIGEST = "c01b619da48b5d30276a99b986d110747139b7c33ab50252821bd272bc2ff5f4"

# -- random spaces ---------------------------------------------------------------------------------

TEXTS = st.text(st.characters(exclude_categories=["C", "Z"]), max_size=3)
CHOICES = st.lists(
    st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from([0.5, -2.25]) | TEXTS,
    min_size=1,
    max_size=5,
    unique_by=lambda choice: choice if isinstance(choice, str) else (choice is None, choice),
)


@st.composite
def parameters(draw, kinds, most, active_when):
    """Draw a parameter of one of some kinds; an `Int` may have more than `most` values if that is None."""
    kind = draw(st.sampled_from(kinds))
    if kind in {Categorical, Ordinal}:
        return kind(draw(CHOICES), active_when)
    log = draw(st.booleans())
    if kind is Int:
        low = draw(st.integers(1 if log else -50, 2**39))
        width = st.integers(1, 40) | st.integers(1, 2**39) if most is None else st.integers(1, most - 1)
        width = draw(width)
        step = 1 if log or most is not None else draw(st.integers(1, min(width, 9)))
        return Int(low, low + width, log, active_when, step=step)
    low = draw(st.floats(1e-300 if log else -1e6, 1e6))
    width = (abs(low) + 1e-9) * draw(st.floats(1e-6, 1e6))
    step = None if log else draw(st.none() | st.integers(1, 9).map(lambda number: width / number))
    return Float(low, low + width, log, active_when, step=step)


@st.composite
def spaces(draw, kinds=(Float, Int, Categorical, Ordinal), most=None, size=6):
    declared: dict[str, object] = {}
    for i in range(draw(st.integers(1, size))):
        parents = [name for name, p in declared.items() if not is_continuous(p)]
        conditions = {}
        for parent in draw(st.lists(st.sampled_from(parents), unique=True, max_size=2)) if parents else []:
            k = declared[parent].num_values
            chosen = draw(st.lists(st.integers(0, min(k, 6) - 1), min_size=1, max_size=3, unique=True))
            conditions[parent] = [declared[parent].value_at(index) for index in chosen]
        declared[f"p{i}"] = draw(parameters(kinds, most, conditions or None))
    names = draw(st.permutations(list(declared)))  # children may come before their parents
    return SearchSpace({name: declared[name] for name in names})


def unit_points(draw, space, n):
    edges = st.sampled_from([0.0, 1.0, 0.5, 1 / 3, np.nextafter(1, 0), np.nextafter(0.5, 0)])
    coordinate = edges | st.floats(0, 1)
    return np.array([[draw(coordinate) for _ in range(space.dimension)] for _ in range(n)])


# -- the plain oracle ------------------------------------------------------------------------------


def edges(parameter):
    """Return the edges of a discrete parameter's bins."""
    k = parameter.num_values
    if isinstance(parameter, Int) and parameter.log:
        lowest = parameter.low - 0.5
        return [np.log1p(i / lowest) / np.log1p(k / lowest) for i in range(k + 1)]
    return [i / k for i in range(k + 1)]


def plain_resolve(space, point):
    """Return (snapped point, features, activity) of one point."""
    units, snapped, features = dict(zip(space.names, point, strict=True)), [], []

    def index(name):
        return sum(edge <= units[name] for edge in edges(space.parameters[name])[:-1]) - 1

    def active(name):
        return all(
            active(parent) and index(parent) in [space.parameters[parent].index_of(v, parent) for v in values]
            for parent, values in space.parameters[name].conditions.items()
        )

    for name, parameter in space.parameters.items():
        coordinate = units[name]
        if not is_continuous(parameter):
            coordinate = sum(edges(parameter)[index(name) : index(name) + 2]) / 2
        snapped.append(coordinate if active(name) else 0.5)
        if isinstance(parameter, Categorical):
            chosen = index(name) if active(name) else None
            features.append(FIRST_CATEGORY + (0 if chosen is None else 1 + chosen))
        else:
            features.append(snapped[-1])
    return snapped, features, [active(name) for name in space.names]


# -- round trips -----------------------------------------------------------------------------------


@given(st.data())
def test_points_configurations_and_their_representatives_belong_together(data):
    space = data.draw(spaces())
    points = unit_points(data.draw, space, 3)
    before, snapped = points.copy(), space.snap(points)
    assert space.snap(snapped).tobytes() == snapped.tobytes(), "snapping twice changes no bit"
    assert snapped is not points
    assert np.array_equal(points, before)
    assert np.array_equal(space.features(snapped), space.features(points))
    for point, representative in zip(points, snapped, strict=True):
        config = space.decode(point)
        assert space.decode(representative) == config
        encoded = space.encode(config)
        assert space.snap(encoded[np.newaxis])[0].tobytes() == encoded.tobytes()
        again = space.decode(encoded)
        assert again.keys() == config.keys()
        for name, value in config.items():
            parameter = space.parameters[name]
            if is_continuous(parameter):
                scale = abs(value) if parameter.log else max(abs(parameter.low), abs(parameter.high))
                assert abs(again[name] - value) <= 1e-12 * scale
            else:
                assert again[name] == value
            assert type(again[name]) is type(value)


@given(st.data())
def test_vectorised_paths_equal_a_plain_loop_over_points(data):
    space = data.draw(spaces(most=40))
    points = unit_points(data.draw, space, 5)
    expected = [plain_resolve(space, point) for point in points]
    np.testing.assert_allclose(space.snap(points), [e[0] for e in expected], rtol=0, atol=1e-13)
    np.testing.assert_allclose(space.features(points), [e[1] for e in expected], rtol=0, atol=1e-13)
    assert np.array_equal(space.active(points), [e[2] for e in expected])
    for method in (space.snap, space.features):  # bit for bit
        assert np.array_equal(method(points), np.concatenate([method(point[np.newaxis]) for point in points]))
    for point, (_, _, activity) in zip(points, expected, strict=True):
        active = [name for name, is_active in zip(space.names, activity, strict=True) if is_active]
        assert list(space.decode(point)) == active


# -- bins and bounds -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "parameter",
    [
        Float(0.1, 0.7), Float(1e-5, 0.3, log=True), Int(-3, 7), Int(1, 2**40, log=True),
        Int(2**40 - 50, 2**40, log=True), Categorical(["a", None, True]), Ordinal([0.1, 1, 10]),
    ],
)  # fmt: skip
def test_the_ends_of_an_axis_are_the_first_and_the_last_value_exactly(parameter):
    space = SearchSpace({"x": parameter})
    values = parameter.choices if hasattr(parameter, "choices") else (parameter.low, parameter.high)
    for unit, value in ((0.0, values[0]), (1.0, values[-1])):
        assert space.decode([unit]) == {"x": value}
        assert space.decode(space.encode({"x": value})) == {"x": value}


@pytest.mark.parametrize("k", [1, 49])
def test_bin_i_of_k_starts_at_i_over_k(k):
    """`49 * (1 / 49) < 1` in floating point: the product alone would put an edge into the bin below."""
    space = SearchSpace({"x": Ordinal(list(range(k)))})
    for i in range(k):
        assert space.decode([i / k]) == {"x": i}
        assert space.decode([np.nextafter((i + 1) / k, 0)]) == {"x": i}
        assert space.encode({"x": i}) == [(i + 0.5) / k]


def test_whole_floats_and_numpy_scalars_stand_for_integers_and_a_log_scale_is_uniform_in_the_logarithm():
    space = SearchSpace({"x": Float(1e-3, 1e3, log=True)})
    assert space.decode([0.5])["x"] == pytest.approx(1, rel=1e-14)
    assert space.encode({"x": 10}) == pytest.approx(4 / 6, rel=1e-14)
    space = SearchSpace({"i": Int(np.int64(0), 9), "o": Ordinal([1, 2]), "c": Categorical([True, "x"])})
    expected = space.encode({"i": 3, "o": 2, "c": True})
    assert np.array_equal(space.encode({"i": np.int64(3), "o": 2.0, "c": np.True_}), expected)
    assert np.array_equal(space.encode({"i": 3.0, "o": np.float64(2), "c": True}), expected)
    config = SearchSpace({"flag": Ordinal(np.array([0.5, 1.5]))}).decode([0.7])
    assert type(config["flag"]) is float
    space = SearchSpace({"x": Float(-0.0, 1)})
    for point in (space.encode({"x": -0.0}), space.snap([[-0.0]])[0], space.features([[-0.0]])[0]):
        assert not np.signbit(point[0])


@given(spaces(kinds=(Int, Categorical, Ordinal), most=5, size=4))
def test_the_number_of_configurations_equals_an_enumeration(space):
    mesh = itertools.product(*[p.centre_of(np.arange(p.num_values)) for p in space.parameters.values()])
    assert space.num_configs == len(np.unique(space.snap(list(mesh)), axis=0))


def test_many_and_long_chains_of_conditions_are_counted_at_once():
    pairs = {f"a{i}": Categorical(["on", "off"]) for i in range(60)}
    pairs |= {f"b{i}": Int(1, 2**30, active_when={f"a{i}": "on"}) for i in range(60)}
    assert SearchSpace(pairs).num_configs == (1 + 2**30) ** 60
    chain = {f"p{i}": Ordinal([0, 1], active_when={f"p{i - 1}": 1} if i else None) for i in range(1500)}
    assert SearchSpace(chain).num_configs == 1501


# -- what a space says of itself -------------------------------------------------------------------


def test_properties_of_a_space_with_every_kind():
    space = SearchSpace(SVM)
    assert (space.names, space.dimension, space.breadth) == (tuple(SVM), 7, 9)
    assert space.num_configs is None
    assert space.continuous.tolist() == [0, 2, 4]
    assert [type(SVM[space.names[axis]]) for axis in space.categorical] == [Categorical]
    assert space.parameters["C"] == SVM["C"]
    for method in (space.snap, space.active, space.features):
        assert method(np.empty((0, 7))).shape == (0, 7)
    floats, points = SearchSpace({"x": Float(0, 1)}), np.random.default_rng(0).random((5, 1))
    for method in (floats.snap, floats.features):
        assert np.array_equal(method(points), points)
        assert not np.shares_memory(method(points), points)


def test_spaces_are_values():
    space, same = SearchSpace(SVM), SearchSpace(dict(SVM))
    assert space == same
    assert hash(space) == hash(same)
    assert space != SearchSpace(dict(reversed(SVM.items())))  # the order of the axes matters
    assert SearchSpace({"x": Categorical([1, 0])}) != SearchSpace({"x": Categorical([True, False])})
    for clone in (pickle.loads(pickle.dumps(space)), copy.deepcopy(space), eval(repr(space))):
        assert clone == space
    assert Int(0, 1, active_when={"a": [2, 1]}) == Int(0, 1, active_when={"a": (1, 2)})
    with pytest.raises(TypeError):
        space.parameters["C"] = Float(0, 1)
    with pytest.raises(ValueError, match="read-only"):
        space.continuous[0] = 1


# -- JSON ------------------------------------------------------------------------------------------


@given(spaces())
def test_json_brings_the_same_space_back(space):
    again = SearchSpace.from_json(space.to_json())
    assert (again, again.digest, again.to_json()) == (space, space.digest, space.to_json())
    assert dict(again.parameters) == dict(space.parameters)


def test_json_is_canonical_and_the_digest_stays():
    space = SearchSpace(
        {"x": Float(0, 1), "é": Categorical(["ü", None], active_when={"i": 1}), "i": Int(0, 1)}
    )
    assert space.to_json() == (
        '{"parameters":[{"high":1.0,"kind":"float","log":false,"low":0.0,"name":"x"},'
        '{"active_when":{"i":[1]},"choices":["\\u00fc",null],"kind":"categorical","name":"\\u00e9"},'
        '{"high":1,"kind":"int","log":false,"low":0,"name":"i"}]}'
    )
    assert SearchSpace(SVM).digest == GOLDEN_DIGEST


def entry(**changes):
    fields = {"name": "x", "kind": "float", "low": 0.0, "high": 1.0, "log": False} | changes
    return json.dumps({"parameters": [{k: v for k, v in fields.items() if v is not ...}]})


def refusal(kind, call, message):
    """Return the error's text, one line that begins with `message`."""
    with pytest.raises(kind) as caught:
        call()
    assert str(caught.value).startswith(message)
    return str(caught.value)


X = '{"high":1.0,"kind":"float","log":false,"low":0.0,"name":"x"}'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"{}", "search space: expected a JSON text of at most 1 MiB, got a bytes"),
        (" " * (2**20 + 1), "search space: expected a JSON text of at most 1 MiB, got 1048577"),
        ("{", "search space: expected JSON, got '{'"),
        ("[" * 200_000, "search space: expected JSON, got '[[["),
        ('{"parameters":[],"x":1}', "search space: expected an object with the keys parameters, got ['par"),
        ('{"parameters":{}}', "search space: expected parameters to be a list, got {}"),
        ('{"parameters":[1]}', "parameter 0: expected name to be a str, got 1"),
        ('{"parameters":[' + X + "," + X + "]}", "search space: expected different names, got 'x' twice"),
        ('{"parameters":[],"parameters":[]}', "search space: expected different keys, got ['par"),
        (entry(kind="normal"), "parameter 'x': expected kind to be one of float, int, categorical, ordinal"),
        (entry(extra=1), "parameter 'x': expected an object with the keys name, kind, low, high, log, got ["),
        (entry(low=True), "parameter 'x': expected low to be a float, got True"),
        (entry(log=1), "parameter 'x': expected log to be a bool, got 1"),
        (entry(low=math.nan), "search space: expected finite numbers, got 'NaN'"),
        (entry().replace("1.0", "1e999"), "search space: expected finite numbers, got '1e999'"),
        (entry(active_when=[]), "parameter 'x': expected active_when to be a dict, got []"),
        (entry(active_when={"y": 1}), "parameter 'x': expected a list of plain values, got 1"),
    ],
)  # fmt: skip
def test_malformed_json_is_refused_in_one_short_line(text, message):
    assert len(refusal(WireError, lambda: SearchSpace.from_json(text), message)) < 300


def test_values_are_shown_in_one_short_line():
    assert show("x" * 78) == f"'{'x' * 78}'"
    assert show("x" * 79) == f"'{'x' * 76}..."


@st.composite
def damaged(draw):
    text = SearchSpace(SVM).to_json()
    start = draw(st.integers(0, len(text)))
    stop = draw(st.integers(start, min(start + 5, len(text))))
    return text[:start] + draw(st.text('{}[],:"0e9-truefalsn', max_size=4)) + text[stop:]


@given(damaged())
def test_hostile_json_gives_one_of_our_errors_in_one_line_or_a_space(text):
    try:
        message = repr(SearchSpace.from_json(text).digest)
    except (WireError, ConfigError) as error:
        message = str(error)
    assert "\n" not in message


# -- errors ----------------------------------------------------------------------------------------


NAMES = "search space: expected names of 1 to 256 printable characters, got"
LEGAL = {"C": 1.0, "kernel": "rbf", "gamma": 0.1, "tol": 1e-3, "iterations": 10}
CYCLES = "search space: expected active_when without cycles, got"


def when(**parents):
    return Int(0, 1, active_when=parents or None)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Float(10.0, 1.0), "Float: expected low < high, got low=10.0, high=1.0"),
        (lambda: Float(0, 1, log=True), "Float: expected low > 0 for a log scale, got low=0.0"),
        (lambda: Float(0, 1, log=1), "Float: log: expected True or False, got 1"),
        (lambda: Float(math.nan, 1), "Float: expected low to be a finite number, got nan"),
        (lambda: Float(0, math.inf), "Float: expected high to be a finite number, got inf"),
        (lambda: Float(0, 10**5000), "Float: expected high to be a finite number, got a huge int"),
        (lambda: Float(False, 1), "Float: expected low to be a finite number, got False"),
        (lambda: Float(-1.7e308, 1.7e308), "Float: expected the bounds to differ by a finite float"),
        (lambda: Float(1e9, np.nextafter(1e9, 2e9), log=True),
         "Float: expected the logarithms to differ by a finite float"),
        (lambda: Int(1, 1e3), "Int: expected high to be a 64-bit int, got 1000.0"),
        (lambda: Int(0, 2**63), "Int: expected high to be a 64-bit int, got 9223372036854775808"),
        (lambda: Int(0, 2**40), "Int: expected at most 2**40 values, got low=0, high="),
        (lambda: Int(2**40, 2**40 + 1, log=True),
         "Int: expected high <= 2**40 for a log scale, got high=1099511627777; try a Float and round"),
        (lambda: Categorical([]), "Categorical: expected choices to hold at least one value, got none"),
        (lambda: Categorical({"a"}), "Categorical: expected a list of choices, got {'a'}"),
        (lambda: Ordinal([[1]]), "Ordinal: expected choices to be str, int, float, bool or None, got [1]"),
        (lambda: Ordinal([1, True]), "Ordinal: expected choices to be different, got True twice (1 == 1.0"),
        (lambda: Ordinal([math.nan]), "Ordinal: expected every float of choices to be a finite number"),
        (lambda: Ordinal([2**64]), "Ordinal: expected every int of choices to be a 64-bit int, got 1844"),
        (lambda: Ordinal(["\ud800"]), "Ordinal: expected every text of choices to be printable"),
        (lambda: Int(0, 1, active_when={}), "Int: expected active_when to be {parent: values}, got {}"),
        (lambda: Int(0, 1, active_when={1: 2}), "Int: expected active_when to name parents, got 1"),
        (lambda: when(a=()), "Int: expected active_when['a'] to hold at least one value, got none"),
        (lambda: SearchSpace({}), "search space: expected at least one parameter, got {}"),
        (lambda: SearchSpace([Float(0, 1)]), "search space: expected a dict from names to parameters, as in "
         'SearchSpace({"x": Float(0, 1)}), got a list'),
        (lambda: SearchSpace({1: when()}), f"{NAMES} 1"),
        (lambda: SearchSpace({"x" * 257: when()}), f"{NAMES} 'xxx"),
        (lambda: SearchSpace({"x": type("Special", (Float,), {})(0, 1)}),
         "x: expected a Float, Int, Categorical or Ordinal, got Special("),
        (lambda: SearchSpace({"x": when(y=1)}), "x: expected active_when to name parameters, got 'y'"),
        (lambda: SearchSpace({"f": Float(0, 1), "x": when(f=1)}),
         "x: expected active_when to name discrete parameters, got Float f"),
        (lambda: SearchSpace({"k": Ordinal(["a", "b"]), "x": when(k="c")}),
         "x: active_when k: expected one of ['a', 'b'], got 'c'"),
        (lambda: SearchSpace({"a": when(b=1), "b": when(a=1)}), CYCLES),
        (lambda: SearchSpace({"x": Ordinal([str(i) for i in range(200_000)])}),
         "search space: expected at most 1 MiB of JSON, got "),
        # -- in JSON
        (partial(SearchSpace.from_json, entry(name="a\nb", low=2.0)),
         "'a\\nb': expected low < high, got low=2.0, high=1.0"),
        # -- illegal configurations
        *((partial(SearchSpace(SVM).encode, LEGAL | change), message) for change, message in (
            ({"alpha": 1}, "'alpha': expected one of ['C', 'kernel', 'gamma', "),
            ({"degree": 3}, "degree: expected no value because it is inactive, got 3"),
            ({"kernel": "linear"}, "gamma: expected no value because it is inactive, got 0.1"),
            *(({"C": value}, f"C: expected a number in [0.001, 1000.0], got {value!r}")
              for value in (1001, math.nan, True, "1")),
            *(({"iterations": value}, f"iterations: expected an integer in [1, 1000], got {value!r}")
              for value in (0, 1.5, True)),
            ({"kernel": ["rbf"]}, "kernel: expected one of ['rbf', 'linear', 'poly'], got ['rbf']"),
        )),
        (lambda: SearchSpace(SVM).encode({n: v for n, v in LEGAL.items() if n != "gamma"}),
         "gamma: expected a value because it is active, got none"),
        *((partial(SearchSpace({"x": Categorical(choices)}).encode, {"x": value}), "x: expected one of")
          for choices, value in (([0, 1], True), ([True, False], 1))),
    ],
)  # fmt: skip
def test_unusable_definitions_and_configurations_are_refused_with_their_reason(build, message):
    refusal(ConfigError, build, message)


@pytest.mark.parametrize(
    ("points", "got"),
    [
        ([0.5], "(n, 2) numbers, got (1,) float64"),
        ([["a", "b"]], "(n, 2) numbers, got (1, 2) <U1"),
        ([[0.5], [0.5, 0.5]], "(n, 2) numbers, got [[0.5], [0.5, 0.5]]"),
        *(([[0.5, value]], f"coordinates in [0, 1], got {value}") for value in (1.5, -1e-09, math.nan)),
    ],
)
@pytest.mark.parametrize("second", [Float(0, 1), Int(0, 1)])
def test_points_outside_the_unit_cube_are_refused(second, points, got):
    space = SearchSpace({"x": Float(0, 1), "y": second})
    for method in (space.snap, space.features, space.active):
        refusal(ConfigError, lambda call=method: call(points), f"points: expected {got}")
    refusal(ConfigError, lambda: space.decode([[0.5, 0.5]]), "points: expected (2,) numbers, got (")
