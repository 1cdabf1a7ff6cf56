"""Rows of the operations on boxes and regions of interest; quantized coordinates are in eighths of a pixel."""

from __future__ import annotations

import functools
from collections.abc import Mapping

from onnx2nnapi.ir.types import Shape
from onnx2nnapi.nnapi.codes import OperandCode, OperationCode
from onnx2nnapi.nnapi.rules import Bound, RuleError, UnknownValue
from onnx2nnapi.nnapi.schema import (
    Fixed,
    Form,
    Rank,
    SameAs,
    Schema,
    Slot,
    TypeRow,
    register,
    scalar,
    tensor,
    type_rows,
)
from onnx2nnapi.nnapi.table.recurrent import expect_shapes

__all__: list[str] = []

BOX_SCALE = 0.125
A16, I32 = OperandCode.TENSOR_QUANT16_ASYMM, OperandCode.TENSOR_INT32
_BOXES = Fixed({A16: (BOX_SCALE, 0)})


def _positive(bound: Bound, *names: str, zero: bool = False) -> None:
    for name in names:
        value = bound.scalar(name)
        if not (value >= 0 if zero else value > 0):
            raise RuleError(f"operand {name!r} is {value}, it must {'not be negative' if zero else 'be positive'}")


def _boxes_are_in_eighths(bound: Bound, names: tuple[str, ...]) -> None:
    """Quantized coordinates have a fixed scale."""
    for name in names:
        type_ = bound[name]
        if type_.is_quantized and (type_.scale, type_.zero_point) != (BOX_SCALE, 0):
            raise RuleError(f"operand {name!r} is {type_}, its scale must be {BOX_SCALE} and its zero point 0")


def _rule_on_boxes(*names: str) -> functools.partial[None]:
    return functools.partial(_boxes_are_in_eighths, names=names)


def _outputs_are_quantized_as_inputs(bound: Bound) -> None:
    """Scores keep their quantization and boxes have the fixed one, whatever their number will be."""
    scores = bound["scores"]
    for type_, expected in zip(bound.outputs, ((scores.scale, scores.zero_point), (BOX_SCALE, 0)), strict=False):
        if type_ is not None and type_.is_quantized and (type_.scale, type_.zero_point) != expected:
            raise RuleError(f"an output is {type_}, its scale must be {expected[0]:g} and its zero point {expected[1]}")


# -- regions of interest -----------------------------------------------------------------------------------------------


def _roi_shape(bound: Bound) -> list[Shape]:
    batch, first, second, third = bound.shape("input")
    nchw = bool(bound.scalar("nchw"))
    count = bound.shape("rois")[0]
    expect_shapes(bound, {"rois": (count, 4), "batch_split": (count,)})
    _positive(bound, "output_height", "output_width", "height_stride", "width_stride")
    if 0 in (batch, first, second, third):
        raise RuleError(f"operand 'input' has shape {list(bound.shape('input'))}, no size may be 0")
    height, width = int(bound.scalar("output_height")), int(bound.scalar("output_width"))
    return [(count, first, height, width) if nchw else (count, height, width, third)]


def _roi_align(bound: Bound) -> list[Shape]:
    _positive(bound, "height_sampling_ratio", "width_sampling_ratio", zero=True)
    return _roi_shape(bound)


def _roi_types() -> tuple[TypeRow, ...]:
    return type_rows(
        "input rois height_stride width_stride output",
        ("F32 F32 f32 f32 F32", 3),
        ("F16 F16 f16 f16 F16", 3),
        ("U8 A16 f32 f32 U8", 3),
        ("S8 A16 f32 f32 S8", 4),
    )


def _heatmap(bound: Bound) -> list[Shape]:
    boxes, first, second, third = bound.shape("heatmap")
    size, other, keypoints = (second, third, first) if bound.scalar("nchw") else (first, second, third)
    if size != other or size < 2:
        raise RuleError(f"operand 'heatmap' has shape {list(bound.shape('heatmap'))}, its maps must be squares of 2 up")
    expect_shapes(bound, {"boxes": (boxes, 4)})
    return [(boxes, keypoints), (boxes, keypoints, 2)]


# -- boxes -------------------------------------------------------------------------------------------------------------


def _bbox_transform(bound: Bound) -> list[Shape]:
    count, size = bound.shape("deltas")
    if size < 4 or size % 4:
        raise RuleError(f"operand 'deltas' has shape {list(bound.shape('deltas'))}, it must hold 4 for each class")
    expect_shapes(bound, {"rois": (count, 4), "batch_split": (count,)})
    batches = bound.shape("image_info")[0]
    expect_shapes(bound, {"image_info": (max(batches, 1), 2)})
    return [(count, size)]


def _box_with_nms(bound: Bound) -> list[Shape]:
    count, classes = bound.shape("scores")
    if classes < 2:
        raise RuleError("operand 'scores' needs at least two classes, of which the first is the background")
    expect_shapes(bound, {"rois": (count, 4 * classes), "batch_split": (count,)})
    if bound.scalar("nms_kernel") not in (0, 1, 2):
        raise RuleError(f"operand 'nms_kernel' is {bound.scalar('nms_kernel')}, it must be 0, 1 or 2")
    raise UnknownValue("the number of boxes that remain")


def _detection(bound: Bound) -> list[Shape]:
    batches, anchors, classes = bound.shape("scores")
    code_size = bound.shape("deltas")[-1]
    expect_shapes(bound, {"deltas": (batches, anchors, max(code_size, 4)), "anchors": (anchors, 4)})
    if classes < 2:
        raise RuleError("operand 'scores' needs at least two classes, of which the first is the background")
    _positive(bound, "scale_y", "scale_x", "scale_h", "scale_w", "max_detections")
    _positive(bound, "score_threshold", "iou_threshold", zero=True)
    limit = "max_detections_per_class" if bound.scalar("regular_nms") else "max_classes_per_detection"
    _positive(bound, limit)
    count = int(bound.scalar("max_detections"))
    if not bound.scalar("regular_nms"):
        count *= int(bound.scalar("max_classes_per_detection"))
    return [(batches, count), (batches, count, 4), (batches, count), (batches,)]


def _proposals(bound: Bound) -> list[Shape]:
    batch, first, second, third = bound.shape("scores")
    nchw = bool(bound.scalar("nchw"))
    anchors = first if nchw else third
    deltas = (batch, 4 * anchors, second, third) if nchw else (batch, first, second, 4 * anchors)
    expect_shapes(bound, {"deltas": deltas, "anchors": (anchors, 4), "image_info": (batch, 2)})
    raise UnknownValue("the number of boxes that remain")


_ROI = (
    tensor("input"),
    tensor("rois"),
    tensor("batch_split", I32),
    scalar("output_height"),
    scalar("output_width"),
    scalar("height_stride", None),
    scalar("width_stride", None),
)
_NCHW = scalar("nchw", OperandCode.BOOL, default=False)
_ROI_RANKS = {"input": Rank(4, 4), "rois": Rank(2, 2), "batch_split": Rank(1, 1)}


def _reals(*names: str) -> tuple[Slot, ...]:
    return tuple(scalar(name, None) for name in names)


def _by_precision(
    tensors: Mapping[str, str], reals: tuple[Slot, ...], *, quantized: bool = True
) -> tuple[TypeRow, ...]:
    """Type rows: all in float32, all in float16, or each tensor in the code that ``tensors`` gives (``Q``: 8 bits)."""
    names = " ".join((*tensors, *(slot.name for slot in reals)))
    rows = [
        (" ".join([wide] * len(tensors) + [short] * len(reals)), 3) for wide, short in (("F32", "f32"), ("F16", "f16"))
    ]
    if quantized:
        for code, level in (("U8", 3), ("S8", 4)):
            codes = [code if kind == "Q" else kind for kind in tensors.values()]
            rows.append((" ".join(codes + ["f32"] * len(reals)), level))
    return type_rows(names, *rows)


_NMS_REALS = _reals("score_threshold", "iou_threshold", "sigma", "nms_score_threshold")
_DETECTION_REALS = _reals("scale_y", "scale_x", "scale_h", "scale_w", "score_threshold", "iou_threshold")
_PROPOSAL_REALS = _reals("height_stride", "width_stride", "iou_threshold", "min_size")

register(
    Schema(
        OperationCode.ROI_ALIGN,
        3,
        (Form("", (*_ROI, scalar("height_sampling_ratio"), scalar("width_sampling_ratio"), _NCHW)),),
        (tensor("output"),),
        _roi_types(),
        _roi_align,
        ranks=_ROI_RANKS,
        rules=(_rule_on_boxes("rois"),),
        zero_sized_since=3,
        doc="Averages a grid of bilinear samples in each cell of each region; a sampling ratio of 0 adapts.",
    ),
    Schema(
        OperationCode.ROI_POOLING,
        3,
        (Form("", (*_ROI, _NCHW)),),
        (tensor("output"),),
        _roi_types(),
        _roi_shape,
        ranks=_ROI_RANKS,
        rules=(_rule_on_boxes("rois"),),
        quantization={"output": SameAs("input")},
        doc="The maximum in each cell of each region.",
    ),
    Schema(
        OperationCode.HEATMAP_MAX_KEYPOINT,
        3,
        (Form("", (tensor("heatmap"), tensor("boxes"), _NCHW)),),
        (tensor("output_scores"), tensor("output_keypoints")),
        type_rows(
            "heatmap boxes output_scores output_keypoints",
            ("F32", 3),
            ("F16", 3),
            ("U8 A16 U8 A16", 3),
            ("S8 A16 S8 A16", 4),
        ),
        _heatmap,
        ranks={"heatmap": Rank(4, 4), "boxes": Rank(2, 2)},
        rules=(_rule_on_boxes("boxes"),),
        quantization={"output_keypoints": _BOXES},
        doc="The place of each map's maximum, refined by a quadratic fit, in its box; and the maximum.",
    ),
    Schema(
        OperationCode.AXIS_ALIGNED_BBOX_TRANSFORM,
        3,
        (Form("", (tensor("rois"), tensor("deltas"), tensor("batch_split", I32), tensor("image_info"))),),
        (tensor("output"),),
        type_rows(
            "rois deltas image_info output", ("F32", 3), ("F16", 3), ("A16 U8 A16 A16", 3), ("A16 S8 A16 A16", 3)
        ),
        _bbox_transform,
        ranks={"rois": Rank(2, 2), "deltas": Rank(2, 2), "batch_split": Rank(1, 1), "image_info": Rank(2, 2)},
        rules=(_rule_on_boxes("rois", "image_info"),),
        quantization={"output": _BOXES},
        zero_sized_since=3,
        doc="Moves and scales boxes by deltas (dx, dy, log dw, log dh) for each class, and clips them to the image.",
    ),
    Schema(
        OperationCode.BOX_WITH_NMS_LIMIT,
        3,
        (
            Form(
                "",
                (
                    tensor("scores"),
                    tensor("rois"),
                    tensor("batch_split", I32),
                    _NMS_REALS[0],
                    scalar("max_detections"),
                    scalar("nms_kernel"),
                    *_NMS_REALS[1:],
                ),
            ),
        ),
        (tensor("output_scores"), tensor("output_rois"), tensor("output_classes", I32), tensor("output_batches", I32)),
        _by_precision({"scores": "Q", "rois": "A16", "output_scores": "Q", "output_rois": "A16"}, _NMS_REALS),
        _box_with_nms,
        ranks={"scores": Rank(2, 2), "rois": Rank(2, 2), "batch_split": Rank(1, 1)},
        rules=(_rule_on_boxes("rois"), _outputs_are_quantized_as_inputs),
        quantization={"output_scores": SameAs("scores"), "output_rois": _BOXES},
        zero_sized_since=3,
        doc="Of each batch the boxes of best score that do not overlap, class by class (hard, linear or gaussian).",
    ),
    Schema(
        OperationCode.DETECTION_POSTPROCESSING,
        3,
        (
            Form(
                "",
                (
                    tensor("scores"),
                    tensor("deltas"),
                    tensor("anchors"),
                    *_DETECTION_REALS[:4],
                    scalar("regular_nms", OperandCode.BOOL),
                    scalar("max_detections"),
                    scalar("max_classes_per_detection"),
                    scalar("max_detections_per_class"),
                    *_DETECTION_REALS[4:],
                    scalar("background_in_label", OperandCode.BOOL),
                ),
            ),
        ),
        (tensor("output_scores"), tensor("output_rois"), tensor("output_classes", I32), tensor("output_counts", I32)),
        _by_precision(
            dict.fromkeys(("scores", "deltas", "anchors", "output_scores", "output_rois"), ""),
            _DETECTION_REALS,
            quantized=False,
        ),
        _detection,
        ranks={"scores": Rank(3, 3), "deltas": Rank(3, 3), "anchors": Rank(2, 2)},
        doc="Decodes boxes from anchors and keeps those of best score that do not overlap; counts says how many.",
    ),
    Schema(
        OperationCode.GENERATE_PROPOSALS,
        3,
        (
            Form(
                "",
                (
                    tensor("scores"),
                    tensor("deltas"),
                    tensor("anchors"),
                    tensor("image_info"),
                    *_PROPOSAL_REALS[:2],
                    scalar("pre_nms_max"),
                    scalar("post_nms_max"),
                    *_PROPOSAL_REALS[2:],
                    _NCHW,
                ),
            ),
        ),
        (tensor("output_scores"), tensor("output_rois"), tensor("output_batches", I32)),
        _by_precision(
            {
                "scores": "Q",
                "deltas": "Q",
                "anchors": "Y16",
                "image_info": "A16",
                "output_scores": "Q",
                "output_rois": "A16",
            },
            _PROPOSAL_REALS,
        ),
        _proposals,
        ranks={"scores": Rank(4, 4), "deltas": Rank(4, 4), "anchors": Rank(2, 2), "image_info": Rank(2, 2)},
        rules=(_rule_on_boxes("anchors", "image_info"), _outputs_are_quantized_as_inputs),
        quantization={"output_scores": SameAs("scores"), "output_rois": _BOXES},
        doc="Moves anchors by deltas at every place of a map, and keeps the best boxes that do not overlap.",
    ),
)
