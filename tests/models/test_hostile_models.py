"""Payloads that must be refused, each with a reason, none with a crash."""

import io
import json
import pickle
import struct
import zipfile

import numpy as np
import pytest
import skops.io
from crafted_models import (
    X,
    Y,
    as_payload,
    first,
    forest,
    linear,
    nodes,
    npy,
    parts,
    raw,
    svm,
    tree,
    wild_child,
    with_schema,
    with_tree_array,
    with_tree_number,
    zipped,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import SGDClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, PolynomialFeatures, StandardScaler
from sklearn.svm import SVC

from fbo_flower.errors import ModelError, WireError
from fbo_flower.models import Limits, pack, predict, unpack

PAYLOADS = {name: pack(make()) for name, make in (("tree", tree), ("linear", linear), ("svm", svm))}


def refused(payload, match, **options):
    with pytest.raises(ModelError, match=match) as caught:
        unpack(payload, **options)
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value, WireError)


# -- the archive -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "payload",
    [
        as_payload(b"not a zip"),
        as_payload(pickle.dumps(tree())),
        as_payload(b"PK\x03\x04" + b"\x00" * 100),
        as_payload(npy(X)),
        PAYLOADS["tree"][:-1],
        PAYLOADS["tree"][: len(PAYLOADS["tree"]) // 2],
        PAYLOADS["tree"][100:],
    ],
    ids=["text", "pickle", "zip header", "npy", "cut by one", "cut in half", "cut at the front"],
)
def test_what_is_no_archive_is_refused(payload):
    refused(payload, "archive: expected")


def test_what_is_not_an_array_of_bytes_is_refused():
    for payload in (
        PAYLOADS["tree"].astype(np.int64),
        PAYLOADS["tree"][None],
        PAYLOADS["tree"].tobytes(),
        None,
    ):
        refused(payload, "expected bytes")
    refused(PAYLOADS["tree"][:0], "1 to")


def test_an_oversized_model_is_refused_before_it_is_read():
    refused(PAYLOADS["tree"], "up to|1 to 100 bytes", limits=Limits(max_bytes=100))


def test_a_zip_bomb_is_refused_before_it_is_inflated():
    bomb = npy(np.zeros(20_000_000))  # 160 MB
    payload = zipped(parts(PAYLOADS["linear"]) | {"99.npy": bomb})
    assert len(payload) < 200_000
    refused(payload, "bytes inflated from")
    refused(payload, "bytes inflated from", limits=Limits(max_ratio=1e9, max_inflated=10**8))
    refused(payload, "names, got 99.npy", limits=Limits(max_ratio=1e9))  # only then it was looked into


def lying(payload, size):
    """The payload with another inflated size of its first array in the directory."""
    data, name = bytearray(payload.tobytes()), b"1.npy"
    start = data.rindex(name) - 46  # of the entry in the central directory
    data[start + 24 : start + 28] = struct.pack("<I", size)
    return as_payload(bytes(data))


def test_a_length_that_lies_is_refused():
    true = len(parts(PAYLOADS["tree"])["1.npy"])
    for size in (0, true - 1, true + 1, 10**6):
        refused(lying(PAYLOADS["tree"], size), "expected")


def test_too_many_entries_are_refused():
    many = {f"{i}.npy": b"" for i in range(100, 200)}
    refused(zipped(parts(PAYLOADS["tree"]) | many), "up to 50 entries", limits=Limits(max_entries=50))


def test_other_files_and_double_names_are_refused():
    content = parts(PAYLOADS["tree"])
    for name in ("../evil.npy", "1.npz", "a.npy", "/1.npy", "1.npy/", "schema.json.bak", "1.bin"):
        refused(zipped(content | {name: b""}), "expected schema.json and arrays|different names")
    with pytest.warns(UserWarning, match="Duplicate"):
        double = zipped([*content.items(), ("schema.json", content["schema.json"])])
    refused(double, "different names")
    refused(zipped({k: v for k, v in content.items() if k != "schema.json"}), "one schema.json")
    refused(zipped(content, zipfile.ZIP_LZMA), "stored or deflated")


# -- arrays ------------------------------------------------------------------------------------


def with_first_array(data):
    return zipped(parts(PAYLOADS["linear"]) | {"1.npy": data})


@pytest.mark.parametrize(
    "data",
    [
        npy(np.array([print], dtype=object)),
        npy(np.zeros(3, dtype=[("a", "O")])),
        npy(np.zeros(3, dtype="M8[s]")),
        npy(np.zeros(3, dtype="V8")),
        pickle.dumps(X),
        npy(X)[:-1],
        npy(X) + b"\x00",
        npy(X)[:20],
        b"",
        b"\x93NUMPY\x03\x00" + npy(X)[8:],
        npy(X).replace(b"(120, 5)", b"(120,-5)"),
        npy(X).replace(b"(120, 5)", b"(9**9**9"),
        npy(X).replace(b"'<f8'", b"'<f9'"),
        zipped({"a.npy": npy(X)}).tobytes(),
    ],
)
def test_arrays_of_objects_and_malformed_ones_are_refused(data):
    refused(with_first_array(data), "expected")


# -- types -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "name"),
    [
        (SGDClassifier(), "SGDClassifier"),
        (make_pipeline(FunctionTransformer(np.log1p), SVC()), "numpy.log1p"),
        (KNeighborsClassifier(algorithm="brute"), "KNeighborsClassifier"),
        (make_pipeline(StandardScaler(), KNeighborsClassifier()), "KNeighborsClassifier"),
        (SVC(random_state=np.random.RandomState(0)), "RandomState"),
    ],
)
def test_types_that_are_not_ours_are_refused_although_skops_trusts_them(model, name):
    refused(pack(model.fit(np.abs(X), Y)), name)


def test_skops_alone_would_have_loaded_three_of_them():
    for model in (SGDClassifier(), FunctionTransformer(np.log1p), KNeighborsClassifier(algorithm="brute")):
        assert skops.io.get_untrusted_types(data=pack(model.fit(np.abs(X), Y)).tobytes()) == []


@pytest.mark.parametrize("loader", ["ObjectNode", "TypeNode", "FunctionNode", "PartialNode", "MethodNode"])
@pytest.mark.parametrize("name", [("builtins", "eval"), ("os", "system"), ("subprocess", "Popen")])
def test_a_type_by_any_loader_is_refused_with_its_name(loader, name):
    def change(schema):
        node = first(schema, "JsonNode")
        node.update(__loader__=loader, __module__=name[0], __class__=name[1])

    refused(with_schema(PAYLOADS["linear"], change), f"got {name[0]}.{name[1]}")


def test_a_trusted_type_does_not_extend_to_other_loaders():
    def change(schema):
        first(schema, "JsonNode").update(
            __loader__="TypeNode", __module__="sklearn.svm._classes", __class__="SVC"
        )

    refused(with_schema(PAYLOADS["linear"], change), "SVC")
    refused(with_schema(PAYLOADS["linear"], lambda s: first(s, "JsonNode").update(__loader__="New")), "New")


def test_the_operators_list_is_a_list_of_names():
    for trusted in ("sklearn.svm._classes.SVC", ["SVC"], [1]):
        refused(PAYLOADS["linear"], "trusted", trusted=trusted)


def test_an_older_protocol_is_refused():
    for protocol in (0, 1, True, "2", None, [2]):
        refused(with_schema(PAYLOADS["linear"], lambda s, p=protocol: s.update(protocol=p)), "protocol")


def test_ids_are_refused_because_they_would_replace_one_node_by_another():
    def change(schema):
        for node in list(nodes(schema))[:4]:
            node["__id__"] = 1

    refused(with_schema(PAYLOADS["linear"], change), "without ids")
    refused(raw(linear()), "without ids")


# -- the schema's form ---------------------------------------------------------------------------


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"null", b'"x"', b"\xff\xfe", b"[" * 100_000, b"{}"])
def test_a_schema_that_is_no_schema_is_refused(text):
    refused(zipped(parts(PAYLOADS["linear"]) | {"schema.json": text}), "expected")


def test_a_schema_within_itself_a_thousand_times_is_refused():
    def change(schema):
        holder = first(schema, "ListNode")
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
    node = first(schema, "NdArrayNode")
    node["file"] = "1.npy"
    first(schema, "ListNode")["content"] += [node] * 500  # 400 MB
    payload = zipped(content | {"schema.json": json.dumps(schema)}, zipfile.ZIP_STORED)
    refused(payload, "bytes in arrays")


def test_a_model_from_another_scikit_learn_is_refused():
    def change(schema):
        for node in nodes(schema):
            if "_sklearn_version" in str(node.get("content", ""))[:0] or node["__loader__"] == "DictNode":
                version = node["content"].get("_sklearn_version")
                if version is not None:
                    version["content"] = '"0.99.1"'

    refused(with_schema(PAYLOADS["linear"], change), "scikit-learn .* as here, got 0.99.1")


MISSING_KEYS = ["__class__", "__module__", "__loader__", "content", "key_types", "file", "type", "shape"]


@settings(max_examples=60)
@given(st.sampled_from(sorted(PAYLOADS)), st.sampled_from(MISSING_KEYS), st.data())
def test_a_node_without_one_of_its_keys_is_an_error_or_a_model(name, key, data):
    def change(schema):
        having = [node for node in nodes(schema) if key in node]
        if having:
            data.draw(st.sampled_from(having)).pop(key)

    survives(with_schema(PAYLOADS[name], change))


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
)


@settings(max_examples=100)
@given(st.sampled_from(sorted(PAYLOADS)), JUNK, st.data())
def test_junk_in_place_of_a_value_is_an_error_or_a_model(name, junk, data):
    def change(schema):
        node = data.draw(st.sampled_from(list(nodes(schema))))
        node[data.draw(st.sampled_from(sorted(node)))] = junk

    survives(with_schema(PAYLOADS[name], change))


@settings(max_examples=150)
@given(st.sampled_from(sorted(PAYLOADS)), JUNK, st.data())
def test_another_value_of_an_attribute_is_an_error_or_a_model(name, junk, data):
    def change(schema):
        plain = [node for node in nodes(schema) if node["__loader__"] == "JsonNode"]
        data.draw(st.sampled_from(plain))["content"] = json.dumps(junk)

    survives(with_schema(PAYLOADS[name], change))


@settings(max_examples=300)
@given(st.sampled_from(sorted(PAYLOADS)), st.data())
def test_flipped_bytes_are_an_error_or_a_model(name, data):
    changed = PAYLOADS[name].copy()
    for _ in range(data.draw(st.integers(1, 3))):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    survives(changed)


@settings(max_examples=200)
@given(st.sampled_from(sorted(PAYLOADS)), st.data())
def test_flipped_bytes_inside_the_archive_are_an_error_or_a_model(name, data):
    content = {key: bytearray(value) for key, value in parts(PAYLOADS[name]).items()}
    for _ in range(data.draw(st.integers(1, 3))):
        part = content[data.draw(st.sampled_from(sorted(content)))]
        part[data.draw(st.integers(0, len(part) - 1))] = data.draw(st.integers(0, 255))
    survives(zipped({key: bytes(value) for key, value in content.items()}))


def survives(payload):
    """Either a ModelError, or predictions; whatever else is raised fails the test, a crash ends it."""
    try:
        result = predict(payload, X, in_process=True)
    except ModelError as error:
        assert "\n" not in str(error)  # noqa: PT017  # both ways are right
        return
    assert len(result) == len(X)


# -- trees -------------------------------------------------------------------------------------


def set_item(field, index, value):
    def change(array):
        array[field][index] = value
        return array

    return change


@pytest.mark.parametrize("make", [tree, forest])
@pytest.mark.parametrize(
    ("key", "change", "match"),
    [
        ("nodes", wild_child, "left_child of node 0"),
        ("nodes", lambda n: wild_child(n, -(2**40)), "left_child of node 0"),
        ("nodes", lambda n: wild_child(n, 0), "left_child of node 0"),  # a walk that never ends
        ("nodes", lambda n: wild_child(n, len(n)), "left_child of node 0"),
        ("nodes", lambda n: wild_child(n, -1), "right_child of node 0"),
        ("nodes", set_item("right_child", 0, 2**31), "right_child of node 0"),
        ("nodes", set_item("right_child", -1, 0), "right_child"),  # of a leaf
        ("nodes", set_item("feature", 0, 5), "features below 5"),
        ("nodes", set_item("feature", 0, -3), "features below 5"),
        ("nodes", set_item("threshold", 0, np.nan), "threshold"),
        ("nodes", set_item("missing_go_to_left", 0, 7), "missing_go_to_left"),
        ("nodes", lambda n: n[:-1], "nodes"),
        ("nodes", lambda n: n[None], "nodes"),
        ("nodes", lambda n: n["threshold"], "nodes"),
        ("values", lambda v: v[:, :, :1], "values"),
        ("values", lambda v: v[:-1], "values"),
        ("values", lambda v: v.astype(np.float32), "values"),
        ("values", lambda v: np.full_like(v, np.inf), "values"),
        ("num_classes", lambda c: c * 2**40, "classes"),
        ("num_classes", lambda c: c - 3, "classes"),
        ("num_classes", lambda c: c[:0], "classes"),
        ("num_classes", lambda c: c.astype(np.int32), "classes"),
    ],
)
def test_a_tree_out_of_its_ranges_is_refused(make, key, change, match):
    refused(with_tree_array(make(), key, change), f"tree: expected .*{match}")


@pytest.mark.parametrize(
    ("where", "value"),
    [
        ("node_count", 2**40), ("node_count", 10**6), ("node_count", 1), ("node_count", -1),
        ("node_count", 1.5),
        ("node_count", "3"), ("num_features", 2**40), ("num_features", 0), ("num_outputs", 1000),
        ("num_outputs", -1), ("num_outputs", True), ("max_depth", -1), ("max_depth", None),
    ],
)  # fmt: skip
def test_a_tree_whose_numbers_lie_is_refused(where, value):
    refused(with_tree_number(tree(), where, value), "tree")


def test_a_tree_whose_state_would_be_dropped_is_refused():
    def change(schema):
        first(schema, "TreeNode")["content"]["key_types"]["content"] = []

    refused(with_schema(pack(tree()), change), "type of every key")


def test_a_tree_for_more_features_than_its_estimator_checks_is_refused():
    refused(with_tree_number(tree(), "num_features", 500), "features of its tree")
    refused(with_tree_number(forest(), "num_features", 500), "features of its tree")


def with_attributes(payload, owner, **values):
    """The payload with other plain attributes of one estimator; None removes."""

    def change(schema):
        node = next(node for node in nodes(schema) if node["__class__"] == owner)
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


def test_a_forest_that_does_not_count_its_columns_is_refused():
    # it would hand its trees whatever rows it is given
    refused(with_attributes(pack(forest()), "RandomForestClassifier", n_features_in_=None), "n_features_in_")
    refused(
        with_attributes(pack(forest()), "RandomForestClassifier", n_features_in_=99), "features of its trees"
    )
    refused(with_attributes(pack(tree()), "DecisionTreeClassifier", n_features_in_=None), "n_features_in_")


@pytest.mark.parametrize("make", [tree, forest, linear, svm])
def test_a_model_of_other_columns_than_the_sites_is_refused(make):
    for x in (X[:, :4], np.hstack([X, X])):
        with pytest.raises(
            ModelError, match=rf"expected {x.shape[1]} features as in this site's rows, got 5"
        ):
            predict(pack(make()), x, in_process=True)


# -- support vectors ------------------------------------------------------------------------------


def with_svm_array(key, change):
    content = parts(PAYLOADS["svm"])
    schema = json.loads(content["schema.json"])
    node = next(node for node in nodes(schema) if node["__class__"] == "SVC")
    holder = node["content"]["content"][key]
    content["999.npy"] = npy(change(np.load(io.BytesIO(content[holder["file"]]))))
    holder["file"] = "999.npy"
    used = {child.get("file") for child in nodes(schema)}
    kept = {name: data for name, data in content.items() if name in used}
    return zipped(kept | {"schema.json": json.dumps(schema)})


@pytest.mark.parametrize(
    ("key", "change"),
    [
        ("_n_support", lambda n: np.array([-5, n.sum() + 5], dtype=np.int32)),  # the sum is right
        ("_n_support", lambda n: n * 1000),
        ("_n_support", lambda n: n.astype(np.int64)),
        ("_n_support", lambda n: n[:1]),
        ("support_vectors_", lambda v: v[:, :2]),
        ("support_vectors_", lambda v: v[:-1]),
        ("support_vectors_", lambda v: v * np.nan),
        ("support_", lambda s: s[:1]),
        ("_dual_coef_", lambda c: c[:, :3]),
        ("_dual_coef_", lambda c: np.vstack([c, c])),
        ("_intercept_", lambda i: i[:0]),
        ("_probA", lambda p: np.zeros(7)),
    ],
)
def test_a_support_vector_machine_out_of_its_shapes_is_refused(key, change):
    refused(with_svm_array(key, change), "SVC: expected")


def test_a_kernel_that_would_index_or_call_is_refused():
    for kernel in ("precomputed", "nothing", 3):
        refused(with_attributes(PAYLOADS["svm"], "SVC", kernel=kernel), "SVC: expected")
    refused(with_attributes(PAYLOADS["svm"], "SVC", _sparse=True), "dense")


def test_an_attribute_that_hides_one_of_the_class_is_refused():
    refused(with_attributes(PAYLOADS["svm"], "SVC", _impl="epsilon_svr"), "_impl")
    refused(with_attributes(PAYLOADS["linear"], "LogisticRegression", predict="x"), "predict")


def test_coefficients_of_another_shape_are_refused():
    content = parts(PAYLOADS["linear"])
    schema = json.loads(content["schema.json"])
    node = next(node for node in nodes(schema) if node["__class__"] == "LogisticRegression")
    name = node["content"]["content"]["coef_"]["file"]
    for coefficients in (np.zeros((1, 4)), np.zeros((3, 5)), np.full((1, 5), np.nan)):
        refused(zipped(content | {name: npy(coefficients)}), "LogisticRegression: expected")


def test_a_pipeline_without_steps_is_refused():
    def change(schema):
        node = next(node for node in nodes(schema) if node["__class__"] == "Pipeline")
        plain = {"__class__": "str", "__module__": "builtins", "__loader__": "JsonNode", "content": "null"}
        version = node["content"]["content"]["_sklearn_version"]
        node["content"]["content"] = {"steps": plain, "_sklearn_version": version}
        node["content"]["key_types"]["content"] = node["content"]["key_types"]["content"][:2]

    payload = with_schema(PAYLOADS["linear"], change)
    payload = zipped({"schema.json": parts(payload)["schema.json"]})
    with pytest.raises(ModelError, match="predicts, got Pipeline"):
        predict(payload, X, in_process=True)


def test_a_model_that_asks_for_a_petabyte_is_an_error():
    model = make_pipeline(PolynomialFeatures(2), SVC()).fit(X, Y)
    payload = with_attributes(pack(model), "PolynomialFeatures", _n_out_full=2**40)
    with pytest.raises(ModelError, match="more memory"):
        predict(payload, X, in_process=True)


def test_something_that_does_not_predict_is_refused():
    refused(pack(StandardScaler().fit(X)), "predicts, got StandardScaler")
    refused(pack({"a": 1}), "predicts, got dict")
    with pytest.raises(ModelError, match="n_features_in_"):
        predict(pack(SVC()), X, in_process=True)  # not fitted
