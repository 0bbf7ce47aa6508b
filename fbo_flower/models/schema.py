"""Check the `schema.json` of a model: known loaders, trusted types, existing arrays, valid trees.

skops trusts every public estimator of scikit-learn and NumPy's functions. Among them are nearest-neighbour
models, which contain their training rows, and transformers that call a function they are given. This module
accepts only listed types: for each kind of node in the schema, the types that it may build. Only the site's
operator can extend the list. A site asks of its own model, before the first one leaves, whether the others
would take it (`check_trust`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from fbo_flower.errors import ModelError, with_article
from fbo_flower.models.archive import SCHEMA, AnyArray, read_archive, read_array, reason
from fbo_flower.models.formats import EVERYTHING, SETUP, is_exported

# -- the types that a received model may contain: estimators on NumPy, libsvm or trees, and plain values
# Excluded on purpose: nearest neighbours, kernel ridge and Gaussian processes, which contain their training
# rows; stochastic gradient descent, boosting and neural networks, whose losses, random states and predictors
# are too much code to check here; and estimators that call a function sent with the model. An operator who
# needs one of these adds it to the trusted types by name.

# module of sklearn: its classes
_CLASSES = """
pipeline: Pipeline FeatureUnion
compose._column_transformer: ColumnTransformer _RemainderColsList
impute._base: SimpleImputer MissingIndicator
preprocessing._data: StandardScaler MinMaxScaler MaxAbsScaler RobustScaler Normalizer Binarizer
preprocessing._data: QuantileTransformer PowerTransformer
preprocessing._encoders: OneHotEncoder OrdinalEncoder
preprocessing._label: LabelEncoder LabelBinarizer
preprocessing._polynomial: PolynomialFeatures
preprocessing._function_transformer: FunctionTransformer
feature_selection._variance_threshold: VarianceThreshold
decomposition._pca: PCA
decomposition._truncated_svd: TruncatedSVD
linear_model._logistic: LogisticRegression LogisticRegressionCV
linear_model._base: LinearRegression
linear_model._ridge: Ridge RidgeCV RidgeClassifier RidgeClassifierCV
linear_model._coordinate_descent: Lasso LassoCV ElasticNet ElasticNetCV
linear_model._bayes: BayesianRidge ARDRegression
linear_model._huber: HuberRegressor
linear_model._quantile: QuantileRegressor
svm._classes: SVC NuSVC SVR NuSVR LinearSVC LinearSVR
tree._classes: DecisionTreeClassifier DecisionTreeRegressor ExtraTreeClassifier ExtraTreeRegressor
ensemble._forest: RandomForestClassifier RandomForestRegressor ExtraTreesClassifier ExtraTreesRegressor
ensemble._bagging: BaggingClassifier BaggingRegressor
ensemble._weight_boosting: AdaBoostClassifier AdaBoostRegressor
naive_bayes: GaussianNB BernoulliNB MultinomialNB ComplementNB CategoricalNB
discriminant_analysis: LinearDiscriminantAnalysis QuadraticDiscriminantAnalysis
neighbors._nearest_centroid: NearestCentroid
dummy: DummyClassifier DummyRegressor
"""  # FunctionTransformer is usable without a function only: functions are refused
ESTIMATORS = frozenset(
    f"sklearn.{module}.{name}"
    for module, names in (line.split(":") for line in _CLASSES.strip().splitlines())
    for name in names.split()
)
PRIMITIVES = frozenset(f"builtins.{name}" for name in ("str", "int", "float", "bool"))
_NUMBERS = "bool bool_ int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64"
NUMBERS = frozenset(f"numpy.{name}" for name in _NUMBERS.split())

MAX_DEPTH = 100  # nesting depth of nodes; a pipeline of forests has 20
OLDEST_PROTOCOL = 2  # of skops; earlier protocols would run older loaders

Node = dict[str, Any]

# loader -> the types that it may build; other loaders are refused
BUILDS: dict[str, frozenset[str]] = {
    "DictNode": frozenset({"builtins.dict"}),
    "ListNode": frozenset({"builtins.list"}),
    "TupleNode": frozenset({"builtins.tuple"}),
    "SliceNode": frozenset({"builtins.slice"}),
    "JsonNode": frozenset({"builtins.str"}),
    "TypeNode": PRIMITIVES | NUMBERS,
    "DTypeNode": frozenset({"numpy.dtype"}),
    "NdArrayNode": NUMBERS | {"numpy.ndarray", "numpy.str_"},
    "ObjectNode": ESTIMATORS,
    "TreeNode": frozenset({"sklearn.tree._tree.Tree"}),
}
# the operator may trust further types for these
EXTENDED = ("ObjectNode", "TypeNode", "FunctionNode", "LossNode", "RandomStateNode")


@dataclass
class Walk:
    """State of the walk over the nodes of a schema.

    Attributes
    ----------
    parts : the files of the archive
    trusted : types that the operator trusts beyond the built-in list
    max_bytes : limit on `num_bytes`
    num_bytes : size of all arrays that nodes refer to; an array counts each time
    arrays : the arrays referred to so far, by file
    names : full names of all types found so far
    """

    parts: Mapping[str, bytes]
    trusted: frozenset[str]
    max_bytes: int
    num_bytes: int = 0
    arrays: dict[str, AnyArray] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)

    def visit(self, node: object) -> Iterator[Node]:
        """Check one node and yield its children."""
        if not isinstance(node, dict):
            raise ModelError(f"{SCHEMA}: expected a node, got {type(node).__name__}")
        loader, name = _text(node, "__loader__"), f"{_text(node, '__module__')}.{_text(node, '__class__')}"
        own = name in BUILDS.get(loader, ())
        if not own and not (loader in EXTENDED and name in self.trusted):
            raise ModelError(f"model: expected trusted types only, got {name[:120]} ({loader[:40]})")
        if "__id__" in node:  # skops would build the node with this id instead
            raise ModelError(f"{SCHEMA}: expected nodes without ids, as `pack` writes them")
        self.names.add(name)
        yield from _CHILDREN[loader](self, node)

    def array(self, node: Node) -> AnyArray:
        """Return the array that a node refers to."""
        if node.get("type") != "numpy":
            raise ModelError(f"{SCHEMA}: expected an array of numbers, got {str(node.get('type'))[:40]!r}")
        name = _text(node, "file")
        if name not in self.parts or name == SCHEMA:
            raise ModelError(f"{SCHEMA}: expected a file of the archive, got {name[:80]!r}")
        if name not in self.arrays:
            self.arrays[name] = read_array(name, self.parts[name])
        return self.arrays[name]


def check_schema(parts: Mapping[str, bytes], trusted: frozenset[str], max_bytes: int) -> set[str]:
    """Check the schema and the arrays of a model, and return the names of its types.

    Parameters
    ----------
    parts : as returned by `read_archive`
    trusted : full names of types that the operator trusts beyond the built-in list
    max_bytes : largest total size of the arrays

    Returns
    -------
    The full names of all types in the model; all of them are trusted.
    """
    try:
        root = json.loads(parts[SCHEMA])
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{SCHEMA}: expected JSON ({reason(error)})") from error
    protocol = root.get("protocol") if isinstance(root, dict) else None
    if type(protocol) is not int or protocol < OLDEST_PROTOCOL:
        raise ModelError(f"{SCHEMA}: expected protocol {OLDEST_PROTOCOL} or later, got {str(protocol)[:40]}")
    walk = Walk(parts, trusted, max_bytes)
    todo: list[tuple[object, int]] = [(root, 0)]
    while todo:
        node, depth = todo.pop()
        if depth > MAX_DEPTH:
            raise ModelError(f"{SCHEMA}: expected up to {MAX_DEPTH} nodes within each other, got more")
        todo.extend((child, depth + 1) for child in walk.visit(node))
    unused = set(parts) - set(walk.arrays) - {SCHEMA}
    if unused:
        raise ModelError(f"archive: expected arrays that the schema names, got {min(unused)}")
    return walk.names


def scalar(node: object) -> object:
    """Return the value of a JSON node: a text, number, boolean or None."""
    if not isinstance(node, dict) or node.get("__loader__") != "JsonNode":
        raise ModelError(f"{SCHEMA}: expected a plain value")
    try:
        value = json.loads(_text(node, "content"))
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{SCHEMA}: expected a plain value ({reason(error)})") from error
    if isinstance(value, list | dict):
        raise ModelError(f"{SCHEMA}: expected a plain value, got {with_article(type(value).__name__)}")
    return value


def check_trust(payload: npt.NDArray[Any], trusted: Sequence[str] = ()) -> None:
    """Refuse a model of this site that holds types which sites do not trust; name all of them.

    Parameters
    ----------
    payload : from `pack`, or from `pack_exported`, which holds no types
    trusted : types beyond the built-in list, the operator's

    Raises
    ------
    ModelError
        With the line for `node_config` that the model needs.
    """
    data = payload.tobytes()
    if is_exported(data):
        return
    more, never = set[str](), set[str]()
    todo: list[Any] = [json.loads(read_archive(data, EVERYTHING)[SCHEMA])]
    while todo:
        node = todo.pop()
        if isinstance(node, dict):
            loader, name = node.get("__loader__"), f"{node.get('__module__')}.{node.get('__class__')}"
            if loader is not None and name not in BUILDS.get(loader, ()) and name not in trusted:
                (more if loader in EXTENDED else never).add(name)
        if isinstance(node, dict | list):
            todo.extend(node.values() if isinstance(node, dict) else node)
    if never:
        raise ModelError(
            f"{SETUP}the model holds {', '.join(sorted(never))}, which no site can trust; export it as onnx"
        )
    if more:
        line = ",".join(sorted({*trusted, *more}))
        raise ModelError(f'{SETUP}set in node_config of every site: trusted = "{line}"')


# -- the children of each kind of node -----------------------------------------------------------


def _of_dict(walk: Walk, node: Node) -> Iterator[Node]:
    content = node.get("content")
    if not isinstance(content, dict):
        raise ModelError(f"{SCHEMA}: expected the items of a dict")
    keys = _child(node, "key_types")
    if keys.get("__loader__") != "ListNode" or len(_items(keys)) != len(content):
        raise ModelError(f"{SCHEMA}: expected a type of every key")  # skops drops items without one
    if any(key.get("__loader__") != "TypeNode" for key in _items(keys)):
        raise ModelError(f"{SCHEMA}: expected types of keys")
    yield from content.values()
    yield keys


def _of_slice(walk: Walk, node: Node) -> Iterable[Node]:
    bounds = _child(node, "content")
    for key in ("start", "stop", "step"):
        if not isinstance(bounds.get(key), int | str | None):
            raise ModelError(f"{SCHEMA}: expected the {key} of a slice")
    return ()


def _of_json(walk: Walk, node: Node) -> Iterable[Node]:
    scalar(node)
    return ()


def _of_array(walk: Walk, node: Node) -> Iterator[Node]:
    if node.get("type") == "json":  # an object array: its items are nodes
        yield from _items(node)
        yield _child(node, "shape")
    else:
        walk.num_bytes += walk.array(node).nbytes
        if walk.num_bytes > walk.max_bytes:
            raise ModelError(f"model: expected up to {walk.max_bytes} bytes in arrays, got more")


def _of_tree(walk: Walk, node: Node) -> Iterator[Node]:
    args, content = _child(_child(node, "__reduce__"), "args"), _child(_child(node, "content"), "content")
    items = args.get("content")
    if args.get("__loader__") != "TupleNode" or not isinstance(items, list) or len(items) != 3:
        raise ModelError("tree: expected features, classes and outputs")
    parts = {"max_depth", "node_count", "nodes", "values"}
    if _child(node, "content").get("__loader__") != "DictNode" or set(content) != parts:
        raise ModelError("tree: expected nodes and values")
    check_tree(
        num_features=scalar(items[0]),
        num_classes=_plain_array(walk, items[1]),
        num_outputs=scalar(items[2]),
        max_depth=scalar(content["max_depth"]),
        node_count=scalar(content["node_count"]),
        nodes=_plain_array(walk, content["nodes"]),
        values=_plain_array(walk, content["values"]),
    )
    yield from _reduced(node)


_CHILDREN: dict[str, Callable[[Walk, Node], Iterable[Node]]] = {
    "DictNode": _of_dict,
    "ListNode": lambda walk, node: _items(node),
    "TupleNode": lambda walk, node: _items(node),
    "SliceNode": _of_slice,
    "JsonNode": _of_json,
    "TypeNode": lambda walk, node: (),
    "FunctionNode": lambda walk, node: (),
    "DTypeNode": lambda walk, node: (_child(node, "content"),),
    "NdArrayNode": _of_array,
    "ObjectNode": lambda walk, node: () if node.get("content") is None else (_child(node, "content"),),
    "TreeNode": _of_tree,
    "LossNode": lambda walk, node: _reduced(node),
    "RandomStateNode": lambda walk, node: (_child(node, "content"),),
}


def _reduced(node: Node) -> tuple[Node, Node]:
    return _child(node, "content"), _child(_child(node, "__reduce__"), "args")


def _plain_array(walk: Walk, node: object) -> AnyArray:
    is_array = isinstance(node, dict) and node.get("__loader__") == "NdArrayNode"
    if not is_array or not isinstance(node, dict) or node.get("__class__") != "ndarray":
        raise ModelError(f"{SCHEMA}: expected an array")
    return walk.array(node)


def _items(node: Node) -> list[Node]:
    content = node.get("content")
    if not isinstance(content, list) or not all(isinstance(item, dict) for item in content):
        raise ModelError(f"{SCHEMA}: expected the items of a list")
    return content


def _child(node: Node, key: str) -> Node:
    child = node.get(key)
    if not isinstance(child, dict):
        raise ModelError(f"{SCHEMA}: expected {key} of a node")
    return child


def _text(node: Node, key: str) -> str:
    value = node.get(key)
    if not isinstance(value, str):
        raise ModelError(f"{SCHEMA}: expected {key} of a node to be a text")
    return value


# -- trees: scikit-learn walks one in C without checking indices, so an invalid child or feature would read
# foreign memory. In a tree that it grew or pruned, children come after their parent; this order also
# guarantees that a walk ends

LEAF = -1
MAX_CLASSES = 10_000


def check_tree(
    *,
    num_features: object,
    num_classes: AnyArray,
    num_outputs: object,
    max_depth: object,
    node_count: object,
    nodes: npt.NDArray[Any],
    values: AnyArray,
) -> None:
    """Raise ModelError if scikit-learn's walk through the tree would leave its arrays or not end.

    Parameters
    ----------
    num_features, num_outputs, max_depth, node_count : positive integers; `max_depth` may be 0
    num_classes : `(num_outputs,)`, at least 1 each; 1 for regression
    nodes : `(node_count,)`, of scikit-learn's node dtype
    values : `(node_count, num_outputs, max(num_classes))`, finite
    """
    from sklearn.tree._tree import NODE_DTYPE

    for name, value, least in (
        ("features", num_features, 1),
        ("outputs", num_outputs, 1),
        ("nodes", node_count, 1),
        ("depth", max_depth, 0),
    ):
        if type(value) is not int or not least <= value < 2**31:
            raise ModelError(f"tree: expected a number of {name} from {least}, got {str(value)[:40]}")
    assert isinstance(num_features, int)
    assert isinstance(node_count, int)
    if num_classes.dtype != np.intp or num_classes.shape != (num_outputs,):
        raise ModelError(f"tree: expected classes of {num_outputs} outputs, got {num_classes.shape}")
    if num_classes.min() < 1 or num_classes.max() > MAX_CLASSES:
        raise ModelError(f"tree: expected 1 to {MAX_CLASSES} classes, got {num_classes.tolist()[:8]}")
    if nodes.dtype != NODE_DTYPE or nodes.shape != (node_count,):
        raise ModelError(f"tree: expected {node_count} nodes, got {nodes.shape} of {str(nodes.dtype)[:40]}")
    expected = (node_count, num_outputs, int(num_classes.max()))
    if values.dtype != np.float64 or values.shape != expected or not np.isfinite(values).all():
        raise ModelError(f"tree: expected values {expected}, all finite, got {values.shape} {values.dtype}")
    index = np.arange(len(nodes))
    leaf = nodes["left_child"] == LEAF
    for side in ("left_child", "right_child"):
        child = nodes[side]
        fits = np.where(leaf, child == LEAF, (child > index) & (child < len(nodes)))
        if not fits.all():
            bad = int(np.argmin(fits))
            raise ModelError(
                f"tree: expected a {side} of node {bad} between {bad + 1} and {len(nodes) - 1}, "
                f"got {int(child[bad])}"
            )
    feature, threshold = nodes["feature"][~leaf], nodes["threshold"][~leaf]
    if ((feature < 0) | (feature >= num_features)).any():
        raise ModelError(f"tree: expected features below {num_features}, got {int(np.max(np.abs(feature)))}")
    if np.isnan(threshold).any():  # infinite thresholds are legal: they separate missing values
        raise ModelError("tree: expected thresholds that are numbers, got NaN")
    if (nodes["missing_go_to_left"][~leaf] > 1).any():
        raise ModelError("tree: expected missing_go_to_left of 0 or 1")
