"""Models of other libraries: what is sent, what is refused, and that a judge predicts what the model does."""

import json
import zlib
from importlib.util import find_spec

import exported_models as bodies
import numpy as np
import pytest
from amounts import examples
from crafted_models import X, Y, as_payload
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import SplineTransformer

from fbo_flower.errors import ModelError, ObjectiveError
from fbo_flower.models import (
    Limits,
    as_file,
    carries_rows_in_bytes,
    check_trust,
    pack,
    pack_exported,
    predict,
    unpack,
)
from fbo_flower.models.formats import EXPORTED, MAGIC, read_envelope

STUMPS = {"xgboost-json": bodies.xgboost(), "lightgbm-text": bodies.lightgbm()}
FUZZED = [*STUMPS, "onnx"] if find_spec("onnx") and find_spec("onnxruntime") else list(STUMPS)
ROWS = np.array([[50.0, 0.0, 70.0], [50.0, 1.0, 70.0], [70.0, 0.0, 70.0], [50.0, np.nan, 70.0]])
HOLES = X.copy()
HOLES[::7, 2] = np.nan


def library(name):
    return pytest.importorskip(name, reason=f"{name} is not installed")


def sent(body, name, columns=3, classes=None):
    return pack_exported(body, name, columns, classes)


def body_of(payload):
    return read_envelope(payload.tobytes(), Limits())[2]


def enveloped(body, name="xgboost-json", columns=3, classes=(), **header):
    """What somebody sends who does not use `pack_exported`."""
    text = json.dumps({"format": name, "num_columns": columns, "classes": list(classes), **header}).encode()
    return as_payload(MAGIC + len(text).to_bytes(4, "little") + text + zlib.compress(body))


# -- the envelope ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", STUMPS)
def test_equal_models_are_equal_bytes_and_a_file_is_what_the_library_reads(name):
    first, second = (sent(STUMPS[name], name) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert as_file(first) == (EXPORTED[name].suffix, body_of(first))
    assert sent(body_of(first), name).tobytes() == first.tobytes()  # written anew once is enough


def test_a_site_without_the_library_says_which_to_install(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ModelError, match=r"setup: .* expected lightgbm .*fbo-flower\[lightgbm\]"):
        unpack(sent(STUMPS["lightgbm-text"], "lightgbm-text"))


@pytest.mark.parametrize(
    ("payload", "match"),
    [
        (as_payload(MAGIC), "envelope"),
        (as_payload(MAGIC + b"\xff\xff\xff\xff{}"), "header of up to"),
        (as_payload(MAGIC + b"\x02\x00\x00\x00[["), "header as JSON"),
        (enveloped(b"x", ["onnx"]), "expected one of onnx"),
        *((enveloped(b"x", columns=columns), "num_columns") for columns in (0, True)),
        *((enveloped(b"x", classes=classes), "classes")
          for classes in ([1, 1], [1, "a"], [0.5, 1.5], range(5000))),
        (enveloped(b"x", more=1), "format, num_columns and classes"),
        (as_payload(enveloped(b"x").tobytes() + b"more"), "one deflated model"),
        (as_payload(enveloped(b"x").tobytes()[:-9] + b"not deflated"), "deflated model"),
        (enveloped(b"\x00" * 40_000_000), "bytes inflated"),
    ],
)  # fmt: skip
def test_an_envelope_that_is_none_is_refused(payload, match):
    with pytest.raises(ModelError, match=match):
        unpack(payload)


@settings(max_examples=examples(200, 20))
@given(st.sampled_from(FUZZED), st.booleans(), st.data())
def test_flipped_bytes_are_an_error_or_a_model(name, inside, data):
    body = linear_onnx() if name == "onnx" else STUMPS[name]
    columns, x = (5, X) if name == "onnx" else (3, ROWS)
    body = bytearray(body if inside else enveloped(body, name, columns).tobytes())
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    payload = enveloped(bytes(body), name, columns) if inside else as_payload(body)
    try:
        assert len(predict(payload, x)) == len(x)
    except ModelError as error:
        assert "the worker" not in str(error)  # noqa: PT017  # it did not end


# -- boosters: checks ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "secrets"),
    [
        ("lightgbm-text", ["93", "133", "sex", "17", "54", "patients.csv"]),  # ranges, counts, names, paths
        ("xgboost-json", ["patient", "sex", "54.0"]),  # attributes, names, counts
    ],
)
def test_what_is_sent_of_a_booster_says_nothing_of_the_data(name, secrets):
    text = body_of(sent(STUMPS[name], name)).decode()
    for secret in secrets:
        assert secret in STUMPS[name].decode()
        assert secret not in text


WRONG = {
    "xgboost-json": [
        (b"", "booster"),
        (b"[" * 100_000, "booster"),
        (b'{"a": NaN}', "finite"),
        (bodies.xgboost(gradient_booster__name="gblinear"), "gbtree"),
        (bodies.xgboost(objective__name="rank:ndcg"), "objective"),
        (bodies.xgboost(objective__reg_loss_param={"a": "b"}), "objective"),
        (bodies.xgboost(objective__other=1), "objective"),
        (bodies.xgboost(learner_model_param__num_feature="4"), "3 columns"),
        (bodies.xgboost(learner_model_param__num_feature="1" * 5000), "a number"),
        (bodies.xgboost(learner_model_param__num_target="2"), "one target"),
        (bodies.xgboost(learner_model_param__base_score="nan"), "base_score"),
        (bodies.xgboost(gradient_booster__model__trees=[]), "trees"),
        (bodies.xgboost(gradient_booster__model__gbtree_model_param__num_trees="2"), "trees"),
        (bodies.xgboost(gradient_booster__model__tree_info=[1]), "tree_info"),
        (bodies.xgboost(gradient_booster__model__tree_info=[-1]), "groups"),
        (bodies.xgboost(gradient_booster__model__iteration_indptr=[0, 2**40]), "iteration_indptr"),
        (bodies.xgboost(gradient_booster__model__cats__enc=[1]), "no categories"),
        (bodies.xgboost_tree(left_children=[2**31, -1, -1]), "whole numbers"),
        (bodies.xgboost_tree(left_children=[3, -1, -1]), "children between"),
        (bodies.xgboost_tree(left_children=[0, -1, -1]), "children between"),
        (bodies.xgboost_tree(left_children=[1, 1, -1], right_children=[2, 2, -1]), "child of one"),
        (bodies.xgboost_tree(left_children=[1, -1]), "3 numbers"),
        (bodies.xgboost_tree(left_children=[1.5, -1, -1]), "whole numbers"),
        (bodies.xgboost_tree(right_children=[-1, -1, -1]), "two children or none"),
        (bodies.xgboost_tree(split_indices=[3, 0, 0]), "columns below 3"),
        (bodies.xgboost_tree(categories=[1]), "no categories"),
        (bodies.xgboost_tree(tree_param={"num_nodes": "1000000000"}), "nodes"),
        (bodies.xgboost_tree(tree_param={"num_nodes": "3", "size_leaf_vector": "9"}), "one value"),
    ],
    "lightgbm-text": [
        (b"", "trees"),
        (bodies.lightgbm(("version=v4", "version=v9")), "version"),
        (bodies.lightgbm(("max_feature_idx=2", "max_feature_idx=9")), "3 columns"),
        (bodies.lightgbm(("objective=regression", "objective=custom")), "objective"),
        (bodies.lightgbm(("num_class=1", "num_class=4")), "as many trees"),
        (bodies.lightgbm(("num_tree_per_iteration=1", "num_tree_per_iteration=0")), "as many trees"),
        (bodies.lightgbm(("num_leaves=3", "num_leaves=1000000000")), "leaves|numbers"),
        (bodies.lightgbm(("num_cat=0", "num_cat=1")), "categories"),
        (bodies.lightgbm(("is_linear=0", "is_linear=1")), "constant"),
        (bodies.lightgbm(("left_child=1 -1", "left_child=0 -1")), "children between"),
        (bodies.lightgbm(("left_child=1 -1", "left_child=1 1")), "child of one"),
        (bodies.lightgbm(("right_child=-2 -3", "right_child=-2 -2147483649")), "whole numbers"),
        (bodies.lightgbm(("split_feature=1 0", "split_feature=1 3")), "columns below 3"),
        (bodies.lightgbm(("decision_type=10 10", "decision_type=11 10")), "numeric splits"),
        (bodies.lightgbm(("threshold=0.5 60", "threshold=nan 60")), "finite"),
        (bodies.lightgbm(("leaf_value=-1 2 3", "")), "booster"),
    ],
}


@pytest.mark.parametrize(
    ("name", "body", "match"), [(name, *case) for name, cases in WRONG.items() for case in cases]
)
def test_a_booster_out_of_its_ranges_is_refused(name, body, match):
    with pytest.raises(ModelError, match=match) as caught:
        EXPORTED[name].checked(body, 3)
    assert len(str(caught.value)) < 400


def test_a_body_that_would_be_refused_is_an_error_where_it_is_exported():
    for match, body, more in (
        ("columns below 3", bodies.xgboost_tree(split_indices=[3, 0, 0]), {}),
        ("up to 100 bytes", STUMPS["xgboost-json"], {"max_bytes": 100}),
    ):
        with pytest.raises(ObjectiveError, match=f"export: .*{match}"):
            pack_exported(body, "xgboost-json", 3, **more)


# -- boosters: predictions ------------------------------------------------------------------------


def xgboost(kind, **options):
    return getattr(library("xgboost"), f"XGB{kind}")(**{"n_estimators": 20, "n_jobs": 1, **options})


def lightgbm(kind, **options):
    kind = getattr(library("lightgbm"), f"LGBM{kind}")
    return kind(n_estimators=20, num_leaves=7, n_jobs=1, verbose=-1, **options)


NAMES = {xgboost: "xgboost-json", lightgbm: "lightgbm-text"}


def exported(model, make, classes=None):
    return sent(EXPORTED[NAMES[make]].export(model, X), NAMES[make], 5, classes)


@pytest.mark.parametrize(
    ("make", "labels"),
    [(xgboost, [0, 1]), (xgboost, [0, 1, 2]), (lightgbm, ["ill", "well"]), (lightgbm, ["ill", "so", "well"])],
)
def test_a_classifier_is_judged_as_it_predicts(make, labels):
    y = np.array(labels)[np.digitize(X[:, 0], [0.0, 0.7][: len(labels) - 1])]
    model = make("Classifier", max_depth=3).fit(HOLES, y)
    payload = exported(model, make, model.classes_)
    assert predict(payload, HOLES).tolist() == model.predict(HOLES).tolist()
    assert predict(payload, X, method="classes_").tolist() == labels
    found, atol = predict(payload, HOLES, method="predict_proba"), 1e-6 if make is xgboost else 1e-12
    np.testing.assert_allclose(found, model.predict_proba(HOLES), atol=atol)
    assert not carries_rows_in_bytes(payload, X)


def test_xgboost_that_stopped_early_predicts_up_to_its_best_tree():
    model = xgboost("Classifier", n_estimators=200, max_depth=3, early_stopping_rounds=2)
    model.fit(X[:60], Y[:60], eval_set=[(X[60:], Y[60:])], verbose=False)
    found = predict(exported(model, xgboost, model.classes_), X, method="predict_proba")
    np.testing.assert_allclose(found, model.predict_proba(X), atol=1e-6)


@pytest.mark.parametrize(
    ("make", "options", "rtol"),
    [(xgboost, {}, 1e-5), (lightgbm, {"boosting_type": "rf", "subsample": 0.7, "subsample_freq": 1}, 1e-12)],
)
def test_a_regression_is_judged_as_it_predicts(make, options, rtol):
    model = make("Regressor", **options).fit(HOLES, X[:, 0] * 3)
    payload = exported(model, make)
    np.testing.assert_allclose(predict(payload, HOLES), model.predict(HOLES), rtol=rtol)
    for match, x, method in (
        ("expected classes", X, "classes_"),
        ("decision_function failed", X, "decision_function"),
        ("expected 4 features as in", X[:, :4], "predict"),
    ):
        with pytest.raises(ModelError, match=match):
            predict(payload, x, method=method)


# -- onnx ------------------------------------------------------------------------------------------


WEIGHTS = np.arange(10, dtype=np.float32).reshape(5, 2) - 4


def linear_onnx(**changes):
    """`x @ w`, 5 columns and 2 scores, with a change to the parts before the model is made."""
    onnx = library("onnx")
    library("onnxruntime")
    helper, numpy_helper = onnx.helper, onnx.numpy_helper
    kinds = onnx.TensorProto
    parts = {
        "nodes": [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "inputs": [helper.make_tensor_value_info("x", kinds.FLOAT, [None, 5])],
        "opsets": [helper.make_opsetid("", 17)],
        "weights": [numpy_helper.from_array(WEIGHTS, "w")],
    }
    parts |= {key: change(onnx, parts[key]) for key, change in changes.items()}
    scores = [helper.make_tensor_value_info("y", kinds.FLOAT, [None, 2])]
    graph = helper.make_graph(parts["nodes"], "g", parts["inputs"], scores, parts["weights"])
    return helper.make_model(graph, opset_imports=parts["opsets"], ir_version=9).SerializeToString()


def in_another_file(onnx, weights):
    weights[0].data_location = onnx.TensorProto.EXTERNAL
    entry = weights[0].external_data.add()
    entry.key, entry.value = "location", "/etc/passwd"
    weights[0].ClearField("raw_data")
    return weights


def node(kind, inputs, **attributes):
    return {"nodes": lambda onnx, n: [onnx.helper.make_node(kind, inputs, ["y"], **attributes)]}


def opsets(*pairs):
    return {"opsets": lambda onnx, o: [onnx.helper.make_opsetid(*pair) for pair in pairs]}


def column(kind, width):
    return {"inputs": lambda onnx, i: [onnx.helper.make_tensor_value_info("x", kind, [None, width])]}


def weight(*shape, **content):
    return {"weights": lambda onnx, w: [onnx.TensorProto(name="w", data_type=1, dims=shape, **content)]}


def test_scores_of_an_onnx_model_become_labels():
    payload = sent(linear_onnx(), "onnx", 5, ["ill", "well"])
    scores = X.astype(np.float32) @ WEIGHTS
    assert predict(payload, X).tolist() == np.array(["ill", "well"])[scores.argmax(axis=1)].tolist()
    with pytest.raises(ModelError, match="predict failed"):
        predict(sent(linear_onnx(), "onnx", 5), X)  # scores of classes that nobody named


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"weights": in_another_file}, "inside the file, got 'w'"),
        (opsets(("", 17), ("ai.mine", 1)), "got ..ai.mine"),
        (node("Evil", ["x"], domain="ai.mine"), "got ai.mine:Evil"),
        (node("Loop", ["", "", "x"]), "control flow, got :Loop"),
        ({"nodes": lambda onnx, n: n * 30_000}, "operators, got 30000"),
        (column(1, 9), "input of 5 columns, got 9"),
        ({"inputs": lambda onnx, i: []}, "one input"),
        (weight(2**40), "numbers"),
        (node("TreeEnsembleRegressor", ["x"], domain="ai.onnx.ml", nodes_featureids=[0, 99]),
         "columns below 5, got 99"),
    ],
)  # fmt: skip
def test_an_onnx_model_out_of_bounds_is_refused_before_it_is_loaded(change, match):
    body = linear_onnx(**change)
    with pytest.raises(ModelError, match=match):
        predict(enveloped(body, "onnx", 5), X)


@pytest.mark.parametrize(
    "change",
    [node("NoSuchThing", ["x"]), weight(5, 2, raw_data=b"few"), opsets(("", 9999))],
)
def test_what_onnx_runtime_refuses_is_an_error_of_the_model(change):
    with pytest.raises(ModelError, match="onnx cannot be loaded"):
        predict(enveloped(linear_onnx(**change), "onnx", 5, ["a", "b"]), X)


# -- rows ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("dtype", "offset"), [(np.float32, 0), (np.float64, 3)])
def test_a_row_in_the_bytes_of_an_onnx_model_is_found_wherever_it_stands(dtype, offset, monkeypatch):
    monkeypatch.setattr("fbo_flower.models.onnx_graph.checked", lambda body, columns: body)
    payload = enveloped(bytes(100 + offset) + X[7].astype(dtype).tobytes() + bytes(9), "onnx", 5)
    place = f"{np.dtype(dtype).name} at byte {100 + offset}"
    assert carries_rows_in_bytes(payload, X) == [place]
    assert carries_rows_in_bytes(payload, X[8:]) == []


def test_a_row_in_the_numbers_of_a_text_is_found():
    row = np.array([0.5, -1.5, 2.25])
    body = bodies.xgboost_tree(split_conditions=row.tolist())
    assert carries_rows_in_bytes(sent(body, "xgboost-json"), np.array([[1.0, 2.0, 3.0], row]))
    assert not carries_rows_in_bytes(sent(body, "xgboost-json"), np.array([[1.0, 2.0, 3.0]]))
    plain = np.array([[0.0, 0.0, 0.0], [0.0, 1.0, 0.0]])  # are no evidence
    assert not carries_rows_in_bytes(sent(STUMPS["xgboost-json"], "xgboost-json"), plain)


# -- one's own model ---------------------------------------------------------------------------------


def test_all_types_that_are_not_trusted_are_named_in_the_line_that_is_needed():
    model = make_pipeline(SplineTransformer(), KNeighborsClassifier(algorithm="brute")).fit(X, Y)
    with pytest.raises(ModelError) as caught:
        check_trust(pack(model), ("a.B",))
    line = str(caught.value).partition("trusted = ")[2].strip('"').split(",")
    assert "a.B" in line
    check_trust(pack(model), line)
    check_trust(sent(STUMPS["xgboost-json"], "xgboost-json"))
