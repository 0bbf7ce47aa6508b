"""ONNX models: checked with the `onnx` library, judged by ONNX Runtime, both in the child only.

Accepted: one float or whole-number input `(n, d)`, the operators of ONNX itself (domains "" and "ai.onnx.ml")
without control flow, and tensors inside the file. Refused: tensors in other files, operators and functions of
one's own, anything larger than the limits below.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from fbo_flower.errors import ModelError
from fbo_flower.models.archive import AnyArray, reason

NAME = "onnx"
DOMAINS = frozenset({"", "ai.onnx", "ai.onnx.ml"})
CONTROL = frozenset({"If", "Loop", "Scan", "SequenceMap", "Optional"})
MAX_NODES = 20_000
MAX_ELEMENTS = 2**27  # of one tensor
MAX_SIZES = 64  # dimensions
_TYPES = {1: "float", 11: "double", 7: "int64", 6: "int32"}  # of TensorProto
_KEEP_WIDTH = frozenset({"Cast", "Identity", "Scaler", "Imputer", "Normalizer"})
_EXTERNAL = 1
_TENSOR, _GRAPH, _TENSORS, _GRAPHS, _SPARSE, _SPARSES = 4, 5, 9, 10, 11, 12  # types of an attribute


def checked(body: bytes, num_columns: int) -> bytes:
    """Return the body, unchanged, or raise ModelError; without the `onnx` library nothing is looked at.

    The child, which loads the model, has the library; the site that sends may do without.
    """
    try:
        import onnx
    except ImportError:
        return body
    model = onnx.ModelProto()
    try:
        model.ParseFromString(body)
    except Exception as error:  # protobuf's own
        raise ModelError(f"{NAME}: expected a serialised model ({reason(error)})") from error
    domains = {entry.domain for entry in model.opset_import}
    if not domains or not domains <= DOMAINS:
        raise ModelError(f"{NAME}: expected operators of ONNX only, got {sorted(domains)[-1:]}")
    if model.functions or model.training_info:
        raise ModelError(f"{NAME}: expected no functions and nothing for training")
    _check_graph(model.graph, num_columns)
    return body


def load(body: bytes) -> Callable[[AnyArray], AnyArray]:
    """Return the function from rows to the first output."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    options.use_deterministic_compute = True
    session = onnxruntime.InferenceSession(body, options, providers=["CPUExecutionProvider"])
    (given,) = session.get_inputs()
    kinds = {f"tensor({name})": np.dtype({"float": "float32"}.get(name, name)) for name in _TYPES.values()}
    if given.type not in kinds:
        raise ModelError(f"{NAME}: expected rows of numbers as input, got {given.type}")
    first = session.get_outputs()[0].name

    def scores(x: AnyArray) -> AnyArray:
        return np.asarray(session.run([first], {given.name: x.astype(kinds[given.type])})[0])

    return scores


def _check_graph(graph: Any, num_columns: int) -> None:
    if not 1 <= len(graph.node) <= MAX_NODES:
        raise ModelError(f"{NAME}: expected 1 to {MAX_NODES} operators, got {len(graph.node)}")
    if graph.sparse_initializer:
        raise ModelError(f"{NAME}: expected no sparse tensors")
    filled = {tensor.name for tensor in graph.initializer}
    inputs = [value for value in graph.input if value.name not in filled]
    if len(inputs) != 1 or len(graph.output) < 1:
        raise ModelError(f"{NAME}: expected one input and an output, got {len(inputs)} inputs")
    kind = inputs[0].type.tensor_type
    if kind.elem_type not in _TYPES:
        raise ModelError(f"{NAME}: expected rows of numbers as input, got type {kind.elem_type}")
    width = kind.shape.dim[1].dim_value if len(kind.shape.dim) == 2 else -1
    if width not in {0, num_columns}:  # 0: any
        raise ModelError(f"{NAME}: expected an input of {num_columns} columns, got {width}")
    for tensor in graph.initializer:
        _check_tensor(tensor)
    as_wide = {inputs[0].name}  # values that have the input's columns
    for node in graph.node:
        if node.domain not in DOMAINS or node.op_type in CONTROL:
            raise ModelError(
                f"{NAME}: expected operators of ONNX without control flow, got "
                f"{node.domain[:40]}:{node.op_type[:40]}"
            )
        for tensor in _tensors(node):
            _check_tensor(tensor)
        if node.input and node.input[0] in as_wide and node.op_type in _KEEP_WIDTH:
            as_wide.update(node.output)
        if node.op_type.startswith("TreeEnsemble"):
            bound = num_columns if node.input and node.input[0] in as_wide else None
            _check_ensemble(node, bound)


def _tensors(node: Any) -> Iterator[Any]:
    for attribute in node.attribute:
        if attribute.type in {_GRAPH, _GRAPHS, _SPARSE, _SPARSES} or attribute.ref_attr_name:
            raise ModelError(f"{NAME}: expected no graphs or sparse tensors in {node.op_type[:40]}")
        if attribute.type in {_TENSOR, _TENSORS}:
            yield from [attribute.t] if attribute.type == _TENSOR else attribute.tensors


def _check_tensor(tensor: Any) -> None:
    if tensor.data_location == _EXTERNAL or tensor.external_data:
        raise ModelError(f"{NAME}: expected tensors inside the file, got {tensor.name[:40]!r} in another")
    sizes = list(tensor.dims)
    if len(sizes) > MAX_SIZES or any(size < 0 for size in sizes) or math.prod(sizes) > MAX_ELEMENTS:
        raise ModelError(f"{NAME}: expected tensors of up to {MAX_ELEMENTS} numbers, got {sizes[:8]}")


def _check_ensemble(node: Any, num_columns: int | None) -> None:
    """Columns of an ensemble's splits: ONNX Runtime reads its rows at these places."""
    for attribute in node.attribute:
        if attribute.name == "nodes_featureids" and len(attribute.ints):
            low, high = min(attribute.ints), max(attribute.ints)
            if low < 0 or (num_columns is not None and high >= num_columns):
                raise ModelError(f"{NAME}: expected splits on columns below {num_columns}, got {high}")
