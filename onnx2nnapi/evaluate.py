"""Constant evaluation: what an operation computes, for folding and for the tests; the only place that does it.

ONNX operators follow onnx.reference, the cheap ones that shape arithmetic consists of in numpy; NNAPI operations are
the interpreter's kernels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from onnx2nnapi.errors import InternalError, InvalidModelError, Onnx2NnapiError
from onnx2nnapi.ir.graph import Graph, Op, Value
from onnx2nnapi.ir.types import Array, LazyArray
from onnx2nnapi.nnapi.codes import OperationCode
from onnx2nnapi.nnapi.infer import bind_values
from onnx2nnapi.nnapi.rules import Argument, RuleError, UnknownValue, output_types
from onnx2nnapi.nnapi.schema import SCHEMAS, Role
from onnx2nnapi.nnapi.types import OperandType
from onnx2nnapi.runtime.kernels import KERNELS, Call

if TYPE_CHECKING:
    import onnx

__all__ = ["evaluate", "evaluate_op", "node_proto", "run_graph"]

Attrs = Mapping[str, Any]
Arrays = Sequence["Array | None"]


def evaluate(kind: str, attrs: Attrs, opset: int, arrays: Arrays, outputs: int = 1) -> list[Array]:
    """Compute one ONNX operator.

    Args:
        kind: operator, ``domain::Name`` outside ONNX's own domain.
        attrs: attributes as in the ONNX dialect, without subgraphs.
        opset: the version of its domain in whose form the node is.
        arrays: its inputs, None where one is omitted.
        outputs: how many outputs are wanted.

    Raises:
        InvalidModelError: it cannot be computed from these inputs.
    """
    try:
        with np.errstate(all="ignore"):
            if kind in _CHEAP and outputs == 1:
                return [np.asarray(_CHEAP[kind](attrs, *arrays))]
            return _by_reference(kind, attrs, opset, arrays, outputs)
    except Onnx2NnapiError:
        raise
    except Exception as error:  # onnx.reference raises whatever numpy does; the caller names the node
        raise InvalidModelError(f"{kind} cannot be computed: {str(error) or type(error).__name__}") from error


def run_graph(graph: Graph, feeds: Mapping[str, Array], outer: Mapping[str, Array] | None = None) -> list[Array]:
    """Run a graph of either dialect on arrays by the names of its input values; the outputs in order.

    Raises:
        InvalidModelError: an operator cannot be computed.
    """
    values: dict[str, Array] = dict(outer or {})
    values.update(feeds)
    values.update((name, value.const.numpy()) for name, value in graph.values.items() if value.const is not None)
    for op in graph.ops:
        arrays = [None if name is None else values[name] for name in op.inputs]
        try:
            if op.kind in _CONTROL:
                results: Sequence[Array | None] = _CONTROL[op.kind](op, arrays, values)
            else:
                results = evaluate_op(graph, op, arrays)
        except InvalidModelError as error:
            if error.where is not None:
                raise
            raise InvalidModelError(error.message, where=op.origin, hint=error.hint) from error.__cause__
        made = zip(op.outputs, results, strict=False)
        values.update((name, array) for name, array in made if name is not None and array is not None)
    return [values[name] for name in graph.outputs]


def evaluate_op(graph: Graph, op: Op, arrays: Arrays) -> Sequence[Array | None]:
    """Compute an operation of a graph of either dialect (control flow of ONNX aside) from its inputs' arrays.

    Raises:
        InvalidModelError: it cannot be computed from these inputs.
    """
    if graph.dialect == "nnapi":
        return _by_kernel(graph, op, arrays)
    domain = op.kind.rpartition("::")[0]
    return evaluate(op.kind, op.attrs, graph.opset.get(domain, 1), arrays, len(op.outputs))


# -- control flow --------------------------------------------------------------------------------------------------


def _if(op: Op, arrays: Arrays, values: Mapping[str, Array]) -> list[Array]:
    branch = op.attrs["then_branch" if bool(_given(arrays[0]).reshape(())) else "else_branch"]
    return run_graph(branch, {}, values)


def _loop(op: Op, arrays: Arrays, values: Mapping[str, Array]) -> list[Array]:
    body: Graph = op.attrs["body"]
    trips = math.inf if arrays[0] is None else int(arrays[0].reshape(()))
    going = arrays[1] is None or bool(arrays[1].reshape(()))
    carried = [_given(array) for array in arrays[2:]]
    scans: list[list[Array]] = [[] for _ in range(len(body.outputs) - 1 - len(carried))]
    step = 0
    while step < trips and going:
        feeds = [np.asarray(step, np.int64), np.asarray(going), *carried]
        condition, *results = run_graph(body, dict(zip(body.inputs, feeds, strict=True)), values)
        going, carried = bool(condition.reshape(())), results[: len(carried)]
        for scan, result in zip(scans, results[len(carried) :], strict=True):
            scan.append(result)
        step += 1
    return [*carried, *(np.stack(scan) if scan else np.zeros((0,), np.float32) for scan in scans)]


def _scan(op: Op, arrays: Arrays, values: Mapping[str, Array]) -> list[Array]:
    body: Graph = op.attrs["body"]
    count = int(op.attrs["num_scan_inputs"])
    given = [_given(array) for array in arrays]
    state, scanned = given[: len(given) - count], given[len(given) - count :]
    results = len(body.outputs) - len(state)
    axes = op.attrs.get("scan_input_axes") or (0,) * count
    backward = op.attrs.get("scan_input_directions") or (0,) * count
    out_axes = op.attrs.get("scan_output_axes") or (0,) * results
    out_backward = op.attrs.get("scan_output_directions") or (0,) * results
    scans: list[list[Array]] = [[] for _ in range(results)]
    steps = scanned[0].shape[axes[0]]
    for step in range(steps):
        slices = [
            array.take(steps - 1 - step if back else step, axis)
            for array, axis, back in zip(scanned, axes, backward, strict=True)
        ]
        outputs = run_graph(body, dict(zip(body.inputs, [*state, *slices], strict=True)), values)
        state = outputs[: len(state)]
        for scan, result in zip(scans, outputs[len(state) :], strict=True):
            scan.append(result)
    stacked = [
        np.stack(scan[::-1] if back else scan, axis)
        for scan, axis, back in zip(scans, out_axes, out_backward, strict=True)
    ]
    return [*state, *stacked]


_CONTROL: dict[str, Callable[[Op, Arrays, Mapping[str, Array]], list[Array]]] = {
    "If": _if,
    "Loop": _loop,
    "Scan": _scan,
}


def _given(array: Array | None) -> Array:
    if array is None:
        raise InvalidModelError("an input that must be there is omitted")
    return array


# -- the operators of shape arithmetic -----------------------------------------------------------------------------


def _shape(attrs: Attrs, x: Array) -> Array:
    return np.asarray(x.shape[slice(attrs.get("start", 0), attrs.get("end"))], np.int64)


def _gather(attrs: Attrs, x: Array, indices: Array) -> Array:
    axis = attrs.get("axis", 0)
    size = x.shape[axis]
    outside = indices[(indices < -size) | (indices >= size)]
    if outside.size:
        raise InvalidModelError(f"Gather cannot be computed: index {outside.flat[0]} on a dimension of {size}")
    return x.take(indices, axis)


def _axes(x: Array, axes: Array | None) -> tuple[int, ...]:
    if axes is None:
        return tuple(axis for axis, size in enumerate(x.shape) if size == 1)
    return tuple(axes.reshape(-1).tolist())


def _slice(
    attrs: Attrs, x: Array, starts: Array, ends: Array, axes: Array | None = None, steps: Array | None = None
) -> Array:
    index = [slice(None)] * x.ndim
    along = range(len(starts)) if axes is None else axes.tolist()
    for at, axis in enumerate(along):
        step = 1 if steps is None else int(steps[at])
        start, end = int(starts[at]), int(ends[at])
        # below -size a backward slice runs off the front, which Python spells None
        index[axis] = slice(start, None if step < 0 and end < -x.shape[axis] else end, step)
    return x[tuple(index)]


def _reshape(attrs: Attrs, x: Array, shape: Array) -> Array:
    keep = not attrs.get("allowzero", 0)
    return x.reshape([x.shape[at] if dim == 0 and keep else int(dim) for at, dim in enumerate(shape)])


def _cast(attrs: Attrs, x: Array) -> Array:
    import onnx

    target = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(attrs["to"]))
    if x.dtype.kind not in "fiub" or target.kind not in "fiub" or target.itemsize * 8 < 8:
        return _by_reference("Cast", attrs, onnx.defs.onnx_opset_version(), [x], 1)[0]
    return x.astype(target)


def _divide(attrs: Attrs, a: Array, b: Array) -> Array:
    if a.dtype.kind not in "iu":
        return a / b
    if not b.all():
        raise InvalidModelError("Div cannot be computed: an integer is divided by zero")
    quotient = abs(a) // abs(b)  # ONNX rounds towards zero
    return np.where((a < 0) != (b < 0), -quotient, quotient).astype(a.dtype)


def _constant_of_shape(attrs: Attrs, shape: Array) -> Array:
    value = attrs.get("value")
    fill = np.zeros(1, np.float32) if value is None else value.numpy()
    return np.full([int(dim) for dim in shape], fill.reshape(-1)[0], fill.dtype)


def _pad(attrs: Attrs, x: Array, pads: Array, value: Array | None = None, axes: Array | None = None) -> Array:
    """Negative pads crop, before the others pad (onnxruntime does so too; onnx.reference refuses them)."""
    mode = str(attrs.get("mode", "constant"))
    along = range(x.ndim) if axes is None else axes.tolist()
    around = np.zeros((x.ndim, 2), np.int64)
    for at, axis in enumerate(along):
        around[axis] = pads[at], pads[at + len(along)]
    crop = tuple(
        slice(max(-before, 0), size - max(-after, 0))
        for size, (before, after) in zip(x.shape, around.tolist(), strict=True)
    )
    keywords = {"constant_values": 0 if value is None else value.reshape(())} if mode == "constant" else {}
    return np.pad(x[crop], np.maximum(around, 0), mode=mode, **keywords)  # type: ignore[call-overload, no-any-return]


def _elementwise(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda attrs, *arrays: function(*arrays)


_CHEAP: dict[str, Callable[..., Any]] = {
    "Add": _elementwise(np.add),
    "Cast": _cast,
    "Concat": lambda attrs, *arrays: np.concatenate(arrays, attrs["axis"]),
    "ConstantOfShape": _constant_of_shape,
    "Div": _divide,
    "Equal": _elementwise(np.equal),
    "Expand": lambda attrs, x, shape: np.broadcast_to(x, np.broadcast_shapes(x.shape, tuple(shape.tolist()))),
    "Gather": _gather,
    "Greater": _elementwise(np.greater),
    "Identity": lambda attrs, x: x,
    "Less": _elementwise(np.less),
    "Mul": _elementwise(np.multiply),
    "Not": _elementwise(np.logical_not),
    "Pad": _pad,
    "ReduceProd": lambda attrs, x, axes=None: _by_axes(np.prod, attrs, x, axes),
    "Reshape": _reshape,
    "Shape": _shape,
    "Size": lambda attrs, x: np.asarray(x.size, np.int64),
    "Slice": _slice,
    "Squeeze": lambda attrs, x, axes=None: np.squeeze(x, _axes(x, axes)),
    "Sub": _elementwise(np.subtract),
    "Transpose": lambda attrs, x: np.transpose(x, attrs.get("perm")),
    "Unsqueeze": lambda attrs, x, axes: np.expand_dims(x, _axes(x, axes)),
    "Where": _elementwise(np.where),
}


def _by_axes(function: Callable[..., Any], attrs: Attrs, x: Array, axes: Array | None) -> Array:
    if axes is None or not axes.size:
        if attrs.get("noop_with_empty_axes", 0):
            return x
        axes = None
    along = None if axes is None else tuple(axes.tolist())
    return np.asarray(function(x, axis=along, keepdims=bool(attrs.get("keepdims", 1)))).astype(x.dtype, copy=False)


# -- the rest: onnx.reference --------------------------------------------------------------------------------------


def _by_reference(kind: str, attrs: Attrs, opset: int, arrays: Arrays, outputs: int) -> list[Array]:
    import onnx
    from onnx.reference import ReferenceEvaluator

    names = [None if array is None else f"i{at}" for at, array in enumerate(arrays)]
    node = node_proto(kind, attrs, names, [f"o{at}" for at in range(outputs)])
    graph = onnx.GraphProto(name="one node", node=[node])
    feeds = {n: a for n, a in zip(names, arrays, strict=True) if n is not None and a is not None}
    for name, array in feeds.items():
        entry = graph.input.add(name=name)
        entry.type.tensor_type.elem_type = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
    for name in node.output:
        graph.output.add(name=name)
    model = onnx.ModelProto(ir_version=onnx.IR_VERSION, graph=graph)
    model.opset_import.add(domain=node.domain, version=opset)
    if node.domain:
        model.opset_import.add(domain="", version=onnx.defs.onnx_opset_version())
    results = ReferenceEvaluator(model).run(None, feeds)
    return [np.asarray(result) for result in results]


_SCALARS = {"FLOAT": "f", "INT": "i", "STRING": "s", "FLOATS": "floats", "INTS": "ints", "STRINGS": "strings"}


def node_proto(
    kind: str, attrs: Attrs, inputs: Sequence[str | None], outputs: Sequence[str | None], name: str = ""
) -> onnx.NodeProto:
    """The ONNX node that an operation of the ONNX dialect is; subgraphs are left out."""
    import onnx

    domain, _, op_type = kind.rpartition("::")
    node = onnx.NodeProto(
        op_type=op_type,
        domain=domain,
        name=name,
        input=["" if item is None else item for item in inputs],
        output=["" if item is None else item for item in outputs],
    )
    for key, value in attrs.items():
        if isinstance(value, Graph) or value is None:
            continue
        entry = node.attribute.add(name=key)
        if isinstance(value, LazyArray):
            entry.type = onnx.AttributeProto.TENSOR
            entry.t.CopyFrom(onnx.numpy_helper.from_array(np.ascontiguousarray(value.numpy()).reshape(value.shape)))
        elif isinstance(value, onnx.TypeProto):
            entry.type = onnx.AttributeProto.TYPE_PROTO
            entry.tp.CopyFrom(value)
        else:
            _set_plain(entry, value)
    return node


def _set_plain(entry: onnx.AttributeProto, value: Any) -> None:
    import onnx

    many = isinstance(value, (tuple, list))
    first = value[0] if many and value else value
    types = onnx.AttributeProto
    if isinstance(first, str):
        data = (
            [item.encode("utf-8", "surrogateescape") for item in value]
            if many
            else value.encode("utf-8", "surrogateescape")
        )
        entry.type = types.STRINGS if many else types.STRING
    elif isinstance(first, float):
        data, entry.type = value, types.FLOATS if many else types.FLOAT
    elif isinstance(first, int) or (many and not value):
        data, entry.type = value, types.INTS if many else types.INT
    else:
        raise InternalError(f"attribute {entry.name!r} is a {type(first).__name__}, which no ONNX attribute is")
    field = _SCALARS[types.AttributeType.Name(entry.type)]
    if many:
        getattr(entry, field).extend(data)
    else:
        setattr(entry, field, data)


# -- NNAPI operations ----------------------------------------------------------------------------------------------


def _by_kernel(graph: Graph, op: Op, arrays: Arrays) -> tuple[Array | None, ...]:
    """Call the operation's kernel, its operands bound by its row with every value known."""
    schema = SCHEMAS[OperationCode[op.kind]]
    tensors = [
        None
        if name is None or array is None
        else Value(name, graph[name].known.with_shape(array.shape), LazyArray.of(array))
        for name, array in zip(op.inputs, arrays, strict=True)
    ]
    declared = [None if name is None else OperandType.of(graph[name].known) for name in op.outputs]
    try:
        bound = bind_values(schema, tensors, op.attrs, outputs=declared)
        try:
            outputs = output_types(bound, declared)
        except UnknownValue:
            outputs = tuple(type_ for type_ in declared if type_ is not None)
        roles = {slot.name: slot.role for slot in bound.slots}
        operands = {name: _operand(roles[name], argument) for name, argument in bound.arguments.items()}
        variadic = [_operand(Role.TENSOR, argument) for argument in bound.variadic]
        with np.errstate(all="ignore"):
            result = KERNELS[schema.code](Call(bound.operand_types(), outputs), *variadic, **operands)
    except RuleError as error:
        raise InvalidModelError(f"{op.kind} cannot be computed: {error}", where=op.origin) from None
    return result if isinstance(result, tuple) else (result,)


def _operand(role: Role, argument: Argument | None) -> Any:
    if argument is None:
        return None
    value = argument.value
    if role is Role.SCALAR:
        return np.asarray(value).reshape(-1)[0].item()
    if role is Role.MODEL:
        return lambda *arrays: tuple(run_graph(value, dict(zip(value.inputs, arrays, strict=True))))
    return value.numpy() if isinstance(value, LazyArray) else np.asarray(value)
