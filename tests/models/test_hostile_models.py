"""Payloads that must be refused, each with a reason, none with a crash."""

import json
import pickle
import struct
import zipfile

import crafted_models as crafted
import numpy as np
import pytest
from amounts import examples
from crafted_models import X, Y, as_payload, linear, nodes, npy, parts, tree, with_schema, zipped
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import SGDClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, PolynomialFeatures, StandardScaler
from sklearn.svm import SVC

from fbo_flower.errors import ModelError, WireError
from fbo_flower.models import Limits, pack, predict, unpack

MAKERS = {"tree": tree, "forest": crafted.forest, "linear": linear, "svm": crafted.svm}
PAYLOADS = {name: pack(MAKERS[name]()) for name in ("tree", "linear", "svm")}


def refused(payload, match, **options):
    with pytest.raises(ModelError, match=match) as caught:
        unpack(payload, **options)
    assert isinstance(caught.value, WireError)


def estimator(schema, owner):
    return next(node for node in nodes(schema) if node["__class__"] == owner)


def with_attributes(payload, owner, **values):
    """The payload with other plain attributes of one estimator; None removes."""

    def change(schema):
        node = estimator(schema, owner)
        attributes = node["content"]["content"]
        for key, value in values.items():
            if value is None:
                keys = list(attributes)
                del attributes[key]
                del node["content"]["key_types"]["content"][keys.index(key)]
            else:
                kind = {"__class__": "str", "__module__": "builtins"}
                if key not in attributes:
                    node["content"]["key_types"]["content"].append(kind | {"__loader__": "TypeNode"})
                attributes[key] = kind | {"__loader__": "JsonNode", "content": json.dumps(value)}

    return with_schema(payload, change)


# -- the archive -------------------------------------------------------------------------------


def test_a_zip_bomb_is_refused_before_it_is_inflated():
    bomb = npy(np.zeros(3_000_000))  # 24 MB
    payload = zipped(parts(PAYLOADS["linear"]) | {"99.npy": bomb})
    assert len(payload) < 200_000
    refused(payload, "bytes inflated from")
    refused(payload, "bytes inflated from", limits=Limits(max_ratio=1e9, max_inflated=10**7))


def lying(payload, size):
    """The payload with another inflated size of its first array in the directory."""
    data, name = bytearray(payload.tobytes()), b"1.npy"
    start = data.rindex(name) - 46  # of the entry in the central directory
    data[start + 24 : start + 28] = struct.pack("<I", size)
    return as_payload(bytes(data))


def test_a_length_that_lies_is_refused():
    true = len(parts(PAYLOADS["tree"])["1.npy"])
    for size in (true - 1, 10**6):
        refused(lying(PAYLOADS["tree"], size), "expected")


def test_other_files_and_double_names_are_refused():
    content = parts(PAYLOADS["tree"])
    for name in ("../evil.npy", "/1.npy", "1.npy/", "schema.json.bak"):
        refused(zipped(content | {name: b""}), "expected schema.json and arrays|different names")
    with pytest.warns(UserWarning, match="Duplicate"):
        double = zipped([*content.items(), ("schema.json", content["schema.json"])])
    refused(double, "different names")
    refused(zipped({k: v for k, v in content.items() if k != "schema.json"}), "one schema.json")
    refused(zipped(content, zipfile.ZIP_LZMA), "stored or deflated")


# -- types -------------------------------------------------------------------------------------


@pytest.mark.parametrize("loader", ["ObjectNode", "TypeNode", "FunctionNode", "PartialNode", "MethodNode"])
@pytest.mark.parametrize("name", [("builtins", "eval"), ("os", "system")])
def test_a_type_by_any_loader_is_refused_with_its_name(loader, name):
    def change(schema):
        node = crafted.first(schema, "JsonNode")
        node.update(__loader__=loader, __module__=name[0], __class__=name[1])

    refused(with_schema(PAYLOADS["linear"], change), f"got {name[0]}.{name[1]}")


@pytest.mark.parametrize(
    ("change", "match"),
    [
        *((lambda s, p=p: s.update(protocol=p), "protocol") for p in (1, True, [2])),
        (lambda s: crafted.first(s, "JsonNode").update(__loader__="New"), "New"),
        (lambda s: crafted.first(s, "JsonNode").update(  # a trusted type does not extend to other loaders
            __loader__="TypeNode", __module__="sklearn.svm._classes", __class__="SVC"
        ), "SVC"),
    ],
)  # fmt: skip
def test_another_protocol_or_loader_is_refused(change, match):
    refused(with_schema(PAYLOADS["linear"], change), match)


def test_the_operators_list_is_a_list_of_names_and_keys_of_a_tree_have_types():
    for trusted in ("sklearn.svm._classes.SVC", ["SVC"]):
        refused(PAYLOADS["linear"], "trusted", trusted=trusted)
    untyped = with_schema(
        PAYLOADS["tree"], lambda s: crafted.first(s, "TreeNode")["content"]["key_types"].update(content=[])
    )
    refused(untyped, "type of every key")  # the state would be dropped


def test_ids_are_refused_because_they_would_replace_one_node_by_another():
    def change(schema):
        for node in list(nodes(schema))[:4]:
            node["__id__"] = 1

    refused(with_schema(PAYLOADS["linear"], change), "without ids")


# -- the schema's form ---------------------------------------------------------------------------


def test_a_schema_within_itself_a_thousand_times_is_refused():
    def change(schema):
        holder = crafted.first(schema, "ListNode")
        inner = holder["content"]
        for _ in range(150):
            inner = [
                {"__loader__": "ListNode", "__module__": "builtins", "__class__": "list", "content": inner}
            ]
        holder["content"] = inner

    refused(with_schema(PAYLOADS["linear"], change), "within each other")


def test_one_array_asked_for_again_and_again_is_counted_each_time():
    content = parts(PAYLOADS["linear"]) | {"1.npy": npy(np.zeros(100_000))}
    schema = json.loads(content["schema.json"])
    node = crafted.first(schema, "NdArrayNode")
    node["file"] = "1.npy"
    crafted.first(schema, "ListNode")["content"] += [node] * 500  # 400 MB
    payload = zipped(content | {"schema.json": json.dumps(schema)}, zipfile.ZIP_STORED)
    refused(payload, "bytes in arrays")


def test_a_model_from_another_scikit_learn_is_refused():
    refused(
        with_attributes(PAYLOADS["linear"], "StandardScaler", _sklearn_version="0.99.1"),
        "scikit-learn .* as here, got 0.99.1",
    )


@settings(max_examples=examples(300, 40))
@given(st.sampled_from(sorted(PAYLOADS)), st.sampled_from([None, -1, 2.5, "x", [[]], {"": 1}]), st.data())
def test_a_schema_with_junk_in_one_place_is_an_error_or_a_model(name, junk, data):
    def change(schema):
        node = data.draw(st.sampled_from(list(nodes(schema))))
        key = data.draw(st.sampled_from(sorted(node)))
        node[key] = json.dumps(junk) if key == "content" and node["__loader__"] == "JsonNode" else junk

    survives(with_schema(PAYLOADS[name], change))


@settings(max_examples=examples(400, 50))
@given(st.sampled_from(sorted(PAYLOADS)), st.booleans(), st.data())
def test_flipped_bytes_are_an_error_or_a_model(name, inside, data):
    content = parts(PAYLOADS[name]) if inside else {"": PAYLOADS[name].tobytes()}
    changed = {key: bytearray(value) for key, value in content.items()}
    for _ in range(data.draw(st.integers(1, 3))):
        part = changed[data.draw(st.sampled_from(sorted(changed)))]
        part[data.draw(st.integers(0, len(part) - 1))] = data.draw(st.integers(0, 255))
    survives(zipped({key: bytes(v) for key, v in changed.items()}) if inside else as_payload(changed[""]))


def survives(payload):
    """Either a ModelError, or predictions; whatever else is raised fails the test, a crash ends it."""
    try:
        assert len(predict(payload, X, in_process=True)) == len(X)
    except ModelError as error:
        assert "\n" not in str(error)  # noqa: PT017  # both ways are right


# -- trees -------------------------------------------------------------------------------------


def set_item(field, index, value):
    def change(array):
        array[field][index] = value
        return array

    return change


@pytest.mark.parametrize(
    ("key", "change", "match"),
    [
        *(("nodes", set_item("left_child", 0, child), "left_child of node 0")
          for child in (2**40, -(2**40), 0)),  # 0: a walk that never ends
        ("nodes", lambda n: crafted.wild_child(n, len(n)), "left_child of node 0"),
        ("nodes", set_item("left_child", 0, -1), "right_child of node 0"),
        ("nodes", set_item("right_child", 0, 2**31), "right_child of node 0"),
        ("nodes", set_item("right_child", -1, 0), "right_child"),  # of a leaf
        ("nodes", set_item("feature", 0, 5), "features below 5"),
        ("nodes", set_item("threshold", 0, np.nan), "threshold"),
        ("nodes", set_item("missing_go_to_left", 0, 7), "missing_go_to_left"),
        *(("nodes", change, "nodes") for change in (lambda n: n[:-1], lambda n: n["threshold"])),
        *(("values", change, "values") for change in (
            lambda v: v[:-1], lambda v: v.astype(np.float32), lambda v: np.full_like(v, np.inf),
        )),
        *(("num_classes", change, "classes") for change in (
            lambda c: c * 2**40, lambda c: c - 3, lambda c: c[:0], lambda c: c.astype(np.int32)
        )),
    ],
)  # fmt: skip
def test_a_tree_out_of_its_ranges_is_refused(key, change, match):
    refused(crafted.with_tree_array(tree(), key, change), f"tree: expected .*{match}")


def test_a_tree_of_a_forest_is_checked_too():
    refused(crafted.with_tree_array(crafted.forest(), "nodes", crafted.wild_child), "left_child of node 0")


@pytest.mark.parametrize(
    ("where", "value"),
    [
        ("node_count", 10**6), ("node_count", 1), ("node_count", 1.5), ("num_features", 2**40),
        ("num_features", 0), ("num_outputs", 1000), ("num_outputs", True), ("max_depth", -1),
    ],
)  # fmt: skip
def test_a_tree_whose_numbers_lie_is_refused(where, value):
    refused(crafted.with_tree_number(tree(), where, value), "tree")


def test_a_model_of_other_columns_than_the_sites_is_refused():
    for x in (X[:, :4], np.hstack([X, X])):
        with pytest.raises(
            ModelError, match=rf"expected {x.shape[1]} features as in this site's rows, got 5"
        ):
            predict(pack(linear()), x, in_process=True)


# -- attributes ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "change"),
    [
        ("_n_support", lambda n: np.array([-5, n.sum() + 5], dtype=np.int32)),  # the sum is right
        ("_n_support", lambda n: n.astype(np.int64)),
        ("support_vectors_", lambda v: v[:, :2]),
        ("support_vectors_", lambda v: v * np.nan),
        ("support_", lambda s: s[:1]),
        ("_dual_coef_", lambda c: c[:, :3]),
        ("_intercept_", lambda i: i[:0]),
        ("_probA", lambda p: np.zeros(7)),
        *(("coef_", lambda _, c=c: c) for c in (np.zeros((1, 4)), np.full((1, 5), np.nan))),
    ],
)
def test_arrays_of_an_estimator_out_of_their_shapes_are_refused(key, change):
    name, owner = ("linear", "LogisticRegression") if key == "coef_" else ("svm", "SVC")
    payload = crafted.with_array(
        PAYLOADS[name], lambda s: estimator(s, owner)["content"]["content"][key], change
    )
    refused(payload, f"{owner}: expected")


def test_a_model_that_is_not_fitted_or_asks_for_a_petabyte_is_an_error():
    model = make_pipeline(PolynomialFeatures(2), SVC()).fit(X, Y)
    huge = with_attributes(pack(model), "PolynomialFeatures", _n_out_full=2**40)
    for payload, match in ((pack(SVC()), "n_features_in_"), (huge, "more memory")):
        with pytest.raises(ModelError, match=match):
            predict(payload, X, in_process=True)


@pytest.mark.parametrize(
    ("payload", "match"),
    [
        *((payload, "archive: expected") for payload in (
            *map(as_payload, (pickle.dumps(tree()), b"PK\x03\x04" + b"\x00" * 100)), PAYLOADS["tree"][:-1],
        )),
        *((payload, "expected bytes") for payload in (PAYLOADS["tree"].astype(np.int64), None)),
        (PAYLOADS["tree"][:0], "1 to"),
        (zipped({f"{i}.npy": b"" for i in range(Limits().max_entries + 1)}), "up to .* entries"),
        *((zipped(parts(PAYLOADS["linear"]) | {"1.npy": data}), "expected") for data in (
            npy(np.array([print], dtype=object)), npy(np.zeros(3, dtype=[("a", "O")])),
            pickle.dumps(X), npy(X)[:-1], npy(X) + b"\x00", npy(X)[:20],
            b"\x93NUMPY\x03\x00" + npy(X)[8:], npy(X).replace(b"(120, 5)", b"(120,-5)"),
            npy(X).replace(b"(120, 5)", b"(9**9**9"), npy(X).replace(b"'<f8'", b"'<f9'"),
        )),
        *((zipped(parts(PAYLOADS["linear"]) | {"schema.json": text}), "expected")
          for text in (b"{", b"[]", b"\xff\xfe", b"[" * 100_000)),
        # types that are not ours, although skops trusts them
        *((pack(model.fit(np.abs(X), Y)), name) for model, name in (
            (SGDClassifier(), "SGDClassifier"),
            (make_pipeline(FunctionTransformer(np.log1p), SVC()), "numpy.log1p"),
            (KNeighborsClassifier(algorithm="brute"), "KNeighborsClassifier"),
            (SVC(random_state=np.random.RandomState(0)), "RandomState"),
        )),
        # attributes that lie
        (crafted.with_tree_number(tree(), "num_features", 500), "features of its tree"),
        (crafted.with_tree_number(crafted.forest(), "num_features", 500), "features of its tree"),
        *((with_attributes(pack(MAKERS[name]()), owner, **values), match) for name, owner, values, match in (
            ("tree", "DecisionTreeClassifier", {"n_features_in_": None}, "n_features_in_"),
            # it would hand its trees whatever rows it is given
            ("forest", "RandomForestClassifier", {"n_features_in_": None}, "n_features_in_"),
            ("forest", "RandomForestClassifier", {"n_features_in_": 99}, "of its trees"),
            # kernels that would index or call
            *(("svm", "SVC", {"kernel": kernel}, "SVC: expected") for kernel in ("precomputed", 3)),
            ("svm", "SVC", {"_sparse": True}, "dense"),
            # an attribute that hides one of the class
            ("svm", "SVC", {"_impl": "epsilon_svr"}, "_impl"),
            ("linear", "LogisticRegression", {"predict": "x"}, "predict"),
        )),
        # what does not predict
        (pack(StandardScaler().fit(X)), "predicts, got StandardScaler"),
    ],
)  # fmt: skip
def test_a_payload_that_is_no_model_of_ours_is_refused(payload, match):
    refused(payload, match)
