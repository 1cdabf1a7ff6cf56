"""What onnx's inference lets pass: sizes of a node's inputs that contradict each other, and constants out of range."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from onnx2nnapi.errors import InvalidModelError
from onnx2nnapi.frontend.types import ShapeError
from onnx2nnapi.ir.graph import Op
from onnx2nnapi.ir.types import Array, LazyArray, Shape, TensorType

__all__ = ["check_node"]

_LIMIT = 1 << 16  # elements up to which a constant is looked at


class _Node:
    """One node and what is known of its inputs; every question that cannot be answered passes."""

    def __init__(self, op: Op, types: Sequence[TensorType | None], constants: Sequence[LazyArray | None]) -> None:
        self.op = op
        self.types = types
        self.constants = constants

    def shape(self, index: int) -> Shape | None:
        type_ = self.types[index] if index < len(self.types) else None
        return None if type_ is None else type_.shape

    def array(self, index: int) -> Array | None:
        const = self.constants[index] if index < len(self.constants) else None
        return const.numpy() if const is not None and const.size <= _LIMIT else None

    def need(self, holds: bool, reason: str) -> None:
        if not holds:
            raise ShapeError(reason, where=self.op.origin)

    def need_vector(self, index: int, size: int, what: str, of: str) -> None:
        shape = self.shape(index)
        if shape is not None:
            self.need(shape == (size,), f"its {what} {self.op.inputs[index]!r} is {list(shape)}, {of} {size}")


def check_node(op: Op, types: Sequence[TensorType | None], constants: Sequence[LazyArray | None]) -> None:
    """Refuse an operation whose inputs contradict each other.

    Args:
        op: in its newest form.
        types: of its inputs, None where one is omitted or not known.
        constants: its constant inputs.

    Raises:
        InvalidModelError: the contradiction, in the name of the node.
    """
    check = _CHECKS.get(op.kind)
    if check is not None:
        check(_Node(op, types, constants))


def _conv(node: _Node) -> None:
    x, w = node.shape(0), node.shape(1)
    if x is None or w is None or len(x) < 3:
        return
    group = int(node.op.attrs.get("group", 1))
    node.need(group > 0, f"its group is {group}")
    node.need(len(w) == len(x), f"its filter has rank {len(w)}, its input {len(x)}")
    node.need(
        x[1] == w[1] * group,
        f"its input has {x[1]} channels, its filter {list(w)} in {group} group(s) takes {w[1] * group}",
    )
    node.need(w[0] % group == 0, f"its {w[0]} filters don't make {group} groups")
    node.need_vector(2, w[0], "bias", "its filters are")
    _spatial(node, w[2:])
    _fits(node, w[2:])


def _conv_transpose(node: _Node) -> None:
    x, w = node.shape(0), node.shape(1)
    if x is None or w is None or len(x) < 3:
        return
    group = int(node.op.attrs.get("group", 1))
    node.need(group > 0, f"its group is {group}")
    node.need(len(w) == len(x), f"its filter has rank {len(w)}, its input {len(x)}")
    node.need(x[1] == w[0], f"its input has {x[1]} channels, its filter {list(w)} takes {w[0]}")
    node.need(x[1] % group == 0, f"its {x[1]} channels don't make {group} groups")
    node.need_vector(2, w[1] * group, "bias", "its filters are")
    _spatial(node, w[2:])


def _lists(node: _Node, rank: int) -> None:
    """A list of a window's operator has an element a dimension; paddings have two."""
    shape = node.shape(0)
    window = f"its window has {rank} dimensions, its input is {list(shape or ())}"
    node.need(shape is None or len(shape) == rank + 2, window)
    for name, length in (("strides", rank), ("dilations", rank), ("pads", 2 * rank), ("output_padding", rank)):
        given = node.op.attrs.get(name)
        node.need(not given or len(given) == length, f"its {name} {list(given or ())} must have {length} elements")


def _spatial(node: _Node, kernel: Shape) -> None:
    _lists(node, len(kernel))
    given = node.op.attrs.get("kernel_shape")
    node.need(
        given is None or tuple(given) == kernel, f"its kernel_shape is {list(given or ())}, its filter {list(kernel)}"
    )


def _fits(node: _Node, kernel: Shape) -> None:
    """A window larger than the padded input has no place in it.

    SAME pads as much as it takes; by ceil_mode the last window may end less than a stride beyond the padding.
    """
    shape, attrs = node.shape(0), node.op.attrs
    if shape is None or len(shape) != len(kernel) + 2 or "SAME" in str(attrs.get("auto_pad", "")) or not all(shape):
        return
    pads = attrs.get("pads") or (0,) * (2 * len(kernel))
    steps = attrs.get("dilations") or (1,) * len(kernel)
    padded = [size + sum(pads[axis :: len(kernel)]) for axis, size in enumerate(shape[2:])]
    reach = [(size - 1) * step + 1 for size, step in zip(kernel, steps, strict=True)]
    strides = attrs.get("strides") or (1,) * len(kernel)
    over = [stride - 1 if attrs.get("ceil_mode") else 0 for stride in strides]
    larger = any(window > size + more for window, size, more in zip(reach, padded, over, strict=True))
    node.need(not larger, f"its window {reach} is larger than its padded input {padded}")


def _pool(node: _Node) -> None:
    """A window that lies in the padding alone has no value."""
    kernel, pads = node.op.attrs.get("kernel_shape", ()), node.op.attrs.get("pads") or ()
    _lists(node, len(kernel))
    dilations = node.op.attrs.get("dilations") or (1,) * len(kernel)
    reach = [(size - 1) * step + 1 for size, step in zip(kernel, dilations, strict=False)]
    for at, pad in enumerate(pads):
        node.need(
            pad < reach[at % len(reach)],
            f"its padding {list(pads)} is as large as its kernel {list(kernel)}: windows would hold padding alone",
        )
    _fits(node, tuple(kernel))


def _per_channel(*positions: int) -> Callable[[_Node], None]:
    def check(node: _Node) -> None:
        x = node.shape(0)
        if x is not None and len(x) > 1:
            for index in positions:
                node.need_vector(index, x[1], "parameter", "its channels are")

    return check


def _gemm(node: _Node) -> None:
    a, b = node.shape(0), node.shape(1)
    if a is None or b is None or len(a) != 2 or len(b) != 2:
        return
    inner = a[0 if node.op.attrs.get("transA") else 1], b[1 if node.op.attrs.get("transB") else 0]
    node.need(inner[0] == inner[1], f"it multiplies {list(a)} by {list(b)}: {inner[0]} against {inner[1]}")
    rows, columns = a[1 if node.op.attrs.get("transA") else 0], b[0 if node.op.attrs.get("transB") else 1]
    c = node.shape(2)
    if c is not None:
        _need_broadcast(node, c, (rows, columns), "its C")


def _need_broadcast(node: _Node, shape: Shape, target: Shape, what: str) -> None:
    """One-way broadcasting."""
    fits = len(shape) <= len(target) and all(
        size in (1, other) for size, other in zip(shape[::-1], target[::-1], strict=False)
    )
    node.need(fits, f"{what} {list(shape)} doesn't broadcast to {list(target)}")


def _prelu(node: _Node) -> None:
    x, slope = node.shape(0), node.shape(1)
    if x is not None and slope is not None:
        _need_broadcast(node, slope, x, "its slope")


def _reshape(node: _Node) -> None:
    shape, target = node.shape(0), node.array(1)
    if shape is None or target is None or target.ndim != 1:
        return
    wanted = [int(dim) for dim in target]
    if not node.op.attrs.get("allowzero"):
        node.need(
            all(dim != 0 or at < len(shape) for at, dim in enumerate(wanted)),
            f"its target {wanted} keeps a dimension that {list(shape)} doesn't have",
        )
        wanted = [shape[at] if dim == 0 else dim for at, dim in enumerate(wanted)]
    known, count = math.prod(dim for dim in wanted if dim != -1), math.prod(shape)
    free = wanted.count(-1)
    node.need(free <= 1 and all(dim >= -1 for dim in wanted), f"its target is {wanted}")
    fits = count == known if not free else known != 0 and count % known == 0
    node.need(fits or (free == 1 and count == 0), f"{list(shape)} has {count} elements, its target is {wanted}")


def _gather(node: _Node) -> None:
    shape, axis = node.shape(0), int(node.op.attrs.get("axis", 0))
    indices = node.array(1)
    if shape is None or indices is None or not -len(shape) <= axis < len(shape):
        return
    _need_indices(node, indices, shape[axis])


def _gather_nd(node: _Node) -> None:
    shape, indices = node.shape(0), node.array(1)
    if shape is None:
        return
    batch = int(node.op.attrs.get("batch_dims", 0))
    places = node.shape(1) or ()
    fits = 0 <= batch < min(len(shape), max(len(places), 1))
    node.need(fits, f"its batch_dims is {batch}, its inputs are {list(shape)} and {list(places)}")
    if indices is None or indices.ndim == 0:
        return
    for at in range(min(indices.shape[-1], len(shape) - batch)):
        _need_indices(node, indices[..., at], shape[batch + at])


def _need_indices(node: _Node, indices: Array, size: int) -> None:
    outside = indices[(indices < -size) | (indices >= size)]
    if outside.size:
        raise InvalidModelError(
            f"its index {outside.reshape(-1)[0]} is outside a dimension of {size}", where=node.op.origin
        )


def _split(node: _Node) -> None:
    shape, parts = node.shape(0), node.op.attrs.get("num_outputs")
    outputs = len(node.op.outputs)
    node.need(parts is None or parts == outputs, f"its num_outputs is {parts}, it has {outputs}")
    axis = int(node.op.attrs.get("axis", 0))
    node.need(shape is None or -len(shape) <= axis < len(shape), f"its axis {axis} is outside its rank")


def _top_k(node: _Node) -> None:
    shape, k, axis = node.shape(0), node.array(1), int(node.op.attrs.get("axis", -1))
    if shape is not None and k is not None and k.size == 1 and -len(shape) <= axis < len(shape):
        wanted = int(k.reshape(()))
        node.need(0 <= wanted <= shape[axis], f"it wants {wanted} of {shape[axis]} elements")


def _transpose(node: _Node) -> None:
    shape, perm = node.shape(0), node.op.attrs.get("perm")
    if shape is not None and perm is not None:
        node.need(
            sorted(perm) == list(range(len(shape))), f"its perm {list(perm)} does not order {len(shape)} dimensions"
        )


def _blocks(node: _Node) -> None:
    shape, block = node.shape(0), int(node.op.attrs.get("blocksize", 0))
    node.need(block > 0, f"its blocksize is {block}")
    if shape is None or len(shape) != 4:
        return
    if node.op.kind == "DepthToSpace":
        node.need(shape[1] % block**2 == 0, f"{shape[1]} channels don't make blocks of {block}×{block}")
    else:
        node.need(shape[2] % block == 0 and shape[3] % block == 0, f"{list(shape[2:])} doesn't make blocks of {block}")


def _resize(node: _Node) -> None:
    scales = node.array(2)
    node.need(scales is None or bool((scales > 0).all()), "a scale is not positive")


def _axis_in_rank(node: _Node) -> None:
    shape, axis = node.shape(0), int(node.op.attrs.get("axis", -1))
    if shape is not None:
        rank = max(len(shape), 1)
        node.need(-rank <= axis < rank, f"its axis {axis} is outside its rank {len(shape)}")


def _recurrent(node: _Node) -> None:
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[node.op.kind]
    x, w, r = node.shape(0), node.shape(1), node.shape(2)
    hidden = node.op.attrs.get("hidden_size")
    if x is None or w is None or r is None or not len(x) == len(w) == len(r) == 3:
        return
    size = int(hidden) if hidden is not None else r[2]
    directions = 2 if node.op.attrs.get("direction") == "bidirectional" else 1
    node.need(
        w == (directions, gates * size, x[2]) and r == (directions, gates * size, size),
        f"its weights {list(w)} and {list(r)} don't fit {directions} direction(s), {size} units and {x[2]} inputs",
    )
    bias = node.shape(3)
    node.need(
        bias is None or bias == (directions, 2 * gates * size), f"its bias is {list(bias or ())}, for {size} units"
    )


def _clip(node: _Node) -> None:
    for index, what in ((1, "min"), (2, "max")):
        shape = node.shape(index)
        node.need(shape is None or math.prod(shape) == 1, f"its {what} is {list(shape or ())}, it must be a scalar")


_CHECKS: dict[str, Callable[[_Node], None]] = {
    "AveragePool": _pool,
    "BatchNormalization": _per_channel(1, 2, 3, 4),
    "Clip": _clip,
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "DepthToSpace": _blocks,
    "GRU": _recurrent,
    "Gather": _gather,
    "GatherElements": _gather,
    "GatherND": _gather_nd,
    "Gemm": _gemm,
    "GroupNormalization": _per_channel(1, 2),
    "InstanceNormalization": _per_channel(1, 2),
    "LSTM": _recurrent,
    "LogSoftmax": _axis_in_rank,
    "LpPool": _pool,
    "MaxPool": _pool,
    "PRelu": _prelu,
    "RNN": _recurrent,
    "Reshape": _reshape,
    "Resize": _resize,
    "Softmax": _axis_in_rank,
    "SpaceToDepth": _blocks,
    "Split": _split,
    "TopK": _top_k,
    "Transpose": _transpose,
}
