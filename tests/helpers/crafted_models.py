"""Fitted models, and packed ones as somebody would send them who means harm."""

import io
import json
import zipfile

import numpy as np
import skops.io
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier

from fbo_flower.models import pack

X, Y = make_classification(120, 5, random_state=0)


def tree(depth=3):
    return DecisionTreeClassifier(max_depth=depth, random_state=0).fit(X, Y)


def forest(num_trees=5):
    return RandomForestClassifier(num_trees, max_depth=3, random_state=0).fit(X, Y)


def linear():
    return make_pipeline(StandardScaler(), LogisticRegression()).fit(X, Y)


def svm():
    return make_pipeline(StandardScaler(), SVC(gamma=0.1)).fit(X, Y)


def as_payload(data):
    return np.frombuffer(data, dtype=np.uint8).copy()


def raw(model):
    """A payload as skops writes it, without our own packing."""
    return as_payload(skops.io.dumps(model, compression=zipfile.ZIP_DEFLATED))


def parts(payload):
    with zipfile.ZipFile(io.BytesIO(payload.tobytes())) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def zipped(content, method=zipfile.ZIP_DEFLATED):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, data in content.items() if isinstance(content, dict) else content:
            archive.writestr(zipfile.ZipInfo(name), data, method)  # no time of day: ids hold the bytes
    return as_payload(buffer.getvalue())


def with_schema(payload, change):
    """The payload after `change(schema)`, which may return a new one."""
    content = parts(payload)
    schema = json.loads(content["schema.json"])
    schema = change(schema) or schema
    return zipped(content | {"schema.json": json.dumps(schema)})


def nodes(value):
    """Every node of a schema."""
    if isinstance(value, dict):
        if "__loader__" in value:
            yield value
        for child in value.values():
            yield from nodes(child)
    elif isinstance(value, list):
        for child in value:
            yield from nodes(child)


def first(schema, loader):
    return next(node for node in nodes(schema) if node["__loader__"] == loader)


def npy(array):
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=True)
    return buffer.getvalue()


def with_array(payload, holder_of, change):
    """The payload after `change(array)`, under the name of a new file; `holder_of(schema)` names the old."""
    content = parts(payload)
    schema = json.loads(content["schema.json"])
    holder = holder_of(schema)
    changed = npy(change(np.load(io.BytesIO(content[holder["file"]]))))
    holder["file"] = "999.npy"
    used = {child.get("file") for child in nodes(schema)}
    kept = {name: data for name, data in content.items() if name in used}
    return zipped(kept | {"999.npy": changed, "schema.json": json.dumps(schema)})


def with_tree_array(model, key, change):
    """A packed model whose first tree's nodes, values or n_classes went through `change(array)`."""

    def holder(schema):
        node = first(schema, "TreeNode")
        classes = node["__reduce__"]["args"]["content"][1]
        return classes if key == "num_classes" else node["content"]["content"][key]

    return with_array(pack(model), holder, change)


def with_tree_number(model, where, value):
    """A packed model whose first tree's scalar is another."""

    def change(schema):
        node = first(schema, "TreeNode")
        if where in {"num_features", "num_outputs"}:
            index = {"num_features": 0, "num_outputs": 2}[where]
            node["__reduce__"]["args"]["content"][index]["content"] = json.dumps(value)
        else:
            node["content"]["content"][where]["content"] = json.dumps(value)

    return with_schema(pack(model), change)


def wild_child(nodes_, child=2**40):
    """The tree that ends scikit-learn's process."""
    nodes_["left_child"][0] = child
    return nodes_
