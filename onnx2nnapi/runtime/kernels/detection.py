"""Kernels of the operations on boxes: decoding, and suppression of those that overlap better ones."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np

from onnx2nnapi.ir.types import Array
from onnx2nnapi.nnapi.rules import RuleError
from onnx2nnapi.runtime.kernels import Call, kernel
from onnx2nnapi.runtime.kernels.arithmetic import widen
from onnx2nnapi.runtime.kernels.regions import float_codes, real

__all__: list[str] = []

HARD, LINEAR, GAUSSIAN = 0, 1, 2


# -- suppression -------------------------------------------------------------------------------------------------------


def _overlaps(box: Array, others: Array) -> Array:
    """Intersection over union of a box (4) with others (n, 4), in float32."""
    area = (box[2] - box[0]) * (box[3] - box[1])
    areas = (others[:, 2] - others[:, 0]) * (others[:, 3] - others[:, 1])
    sides = np.minimum(box[2:], others[:, 2:]) - np.maximum(box[:2], others[:, :2])
    shared = np.maximum(sides, 0).prod(axis=1)
    overlaps: Array = shared / (areas + area - shared)
    return overlaps


def _suppress(
    candidates: Array, scores: Array, boxes: Array, most: int, drops: Callable[[Array, Array], Array]
) -> Array:
    """Candidates in the order in which they are taken: always that of best score, until ``most`` are (< 0: all).

    Args:
        candidates: indices.
        scores: of every index; ``drops`` may lower them.
        boxes: of every index.
        most: how many may be taken.
        drops: which of the remaining indices a taken one removes, by their overlaps with it.

    What is removed is overwritten by the last that remains, so that ties are met in the order of Android.
    """
    taken: list[int] = []
    rest = candidates
    while len(rest) and (most < 0 or len(taken) < most):
        best = int(np.argmax(scores[rest]))
        index = int(rest[best])
        taken.append(index)
        rest = rest.copy()
        rest[best] = rest[0]
        rest = rest[1:]
        kept = ~drops(rest, _overlaps(boxes[index], boxes[rest]))
        count = int(kept.sum())
        head, tail = rest[:count].copy(), rest[count:]
        head[~kept[:count]] = tail[kept[count:]][::-1]
        rest = head
    return np.asarray(taken, np.intp)


def _falling(indices: Array, scores: Array) -> Array:
    """Indices by falling score."""
    return indices[np.argsort(-scores[indices], kind="stable")]


def _hard(threshold: float) -> Callable[[Array, Array], Array]:
    return lambda rest, overlaps: overlaps >= np.float32(threshold)


# -- decoding ----------------------------------------------------------------------------------------------------------


def _transformed(boxes: Array, deltas: Array, heights: Array, widths: Array) -> Array:
    """Boxes (n, 1, 4) moved and scaled by deltas (n, classes, 4), clipped to images of these sizes (n)."""
    if not (boxes[..., :2] <= boxes[..., 2:]).all():
        raise RuleError("operand 'rois' holds a box that is turned inside out")
    sizes = boxes[..., 2:] - boxes[..., :2]
    centres = (boxes[..., :2] + boxes[..., 2:]) / np.float32(2)
    centres = centres + deltas[..., :2] * sizes
    sizes = np.exp(deltas[..., 2:]) * sizes
    corners = np.concatenate((centres - sizes / np.float32(2), centres + sizes / np.float32(2)), axis=-1)
    limits = np.stack((widths, heights, widths, heights), axis=-1)[:, np.newaxis]
    clipped: Array = np.minimum(np.maximum(corners, 0), limits)
    return clipped


@kernel("AXIS_ALIGNED_BBOX_TRANSFORM")
def axis_aligned_bbox_transform(call: Call, rois: Array, deltas: Array, batch_split: Array, image_info: Array) -> Array:
    images = real(image_info, call["image_info"])
    known = (batch_split >= 0) & (batch_split < len(images))
    if not known.all():
        raise RuleError(f"operand 'batch_split' names batch {batch_split[~known][0]}, there are {len(images)}")
    heights, widths = images[batch_split].T
    boxes = real(rois, call["rois"])[:, np.newaxis]
    moves = real(deltas, call["deltas"]).reshape(len(rois), deltas.shape[1] // 4, 4)
    corners = _transformed(boxes, moves, heights, widths)
    return float_codes(corners.reshape(deltas.shape), call.output)


# -- operations --------------------------------------------------------------------------------------------------------


@kernel("BOX_WITH_NMS_LIMIT")
def box_with_nms_limit(
    call: Call,
    scores: Array,
    rois: Array,
    batch_split: Array,
    score_threshold: float,
    max_detections: int,
    nms_kernel: int,
    iou_threshold: float,
    sigma: float,
    nms_score_threshold: float,
) -> tuple[Array, ...]:
    classes = scores.shape[1]
    numbers = real(scores, call["scores"]).reshape(-1).copy()
    boxes = real(rois, call["rois"]).reshape(-1, 4)
    if not (boxes[:, :2] <= boxes[:, 2:]).all():
        raise RuleError("operand 'rois' holds a box that is turned inside out")

    def drops(rest: Array, overlaps: Array) -> Array:
        if nms_kernel == GAUSSIAN:
            weights = np.exp(np.float32(-1) * overlaps * overlaps / np.float32(sigma))
        else:
            beyond = 1 - overlaps if nms_kernel == LINEAR else np.float32(0)
            weights = np.where(overlaps < np.float32(iou_threshold), np.float32(1), beyond)
        numbers[rest] *= weights
        dropped: Array = numbers[rest] < np.float32(nms_score_threshold)
        return dropped

    chosen: list[Array] = []
    edges = np.flatnonzero(np.diff(batch_split, prepend=batch_split[:1] - 1, append=batch_split[-1:] + 1))
    for first, last in itertools.pairwise(edges):
        picked: list[Array] = []
        for label in range(1, classes):  # class 0 is the background
            column = np.arange(first, last) * classes + label
            candidates = column[numbers[column] > np.float32(score_threshold)]
            picked.append(_suppress(candidates, numbers, boxes, max_detections, drops))
        best = _falling(np.concatenate(picked), numbers)
        best = best if max_detections < 0 else best[:max_detections]
        chosen.append(best[np.lexsort((-numbers[best], best % classes))])
    indices = np.concatenate([np.zeros(0, np.intp), *chosen])
    return (
        float_codes(numbers[indices], call.outputs[0]),
        rois.reshape(-1, 4)[indices],
        (indices % classes).astype(np.int32),
        batch_split[indices // classes],
    )


@kernel("GENERATE_PROPOSALS")
def generate_proposals(
    call: Call,
    scores: Array,
    deltas: Array,
    anchors: Array,
    image_info: Array,
    height_stride: float,
    width_stride: float,
    pre_nms_max: int,
    post_nms_max: int,
    iou_threshold: float,
    min_size: float,
    nchw: bool,
) -> tuple[Array, ...]:
    numbers, moves = real(scores, call["scores"]), real(deltas, call["deltas"])
    if nchw:
        numbers, moves = numbers.transpose(0, 2, 3, 1), moves.transpose(0, 2, 3, 1)
    height, width = numbers.shape[1:3]
    shift_y = np.arange(height, dtype=np.float32) * np.float32(height_stride)
    shift_x = np.arange(width, dtype=np.float32) * np.float32(width_stride)
    shifts = np.stack(np.broadcast_arrays(shift_x, shift_y[:, np.newaxis]) * 2, axis=-1)
    places = (shifts[:, :, np.newaxis] + real(anchors, call["anchors"])).reshape(-1, 1, 4)
    kept: list[tuple[Array, Array, Array]] = []
    for batch, (image_height, image_width) in enumerate(real(image_info, call["image_info"])):
        sizes = (np.full(len(places), side, np.float32) for side in (image_height, image_width))
        boxes = _transformed(places, moves[batch].reshape(-1, 1, 4), *sizes)[:, 0]
        ranks = numbers[batch].reshape(-1)
        candidates = np.arange(len(boxes))
        if 0 < pre_nms_max < len(candidates):
            candidates = _falling(candidates, ranks)[:pre_nms_max]
        extents = boxes[candidates, 2:] - boxes[candidates, :2]
        centres = boxes[candidates, :2] + extents / np.float32(2)
        large = (extents > np.float32(min_size)).all(axis=1)
        within = (centres < np.array((image_width, image_height), np.float32)).all(axis=1)
        taken = _suppress(candidates[large & within], ranks, boxes, post_nms_max, _hard(iou_threshold))
        kept.append((ranks[taken], boxes[taken], np.full(len(taken), batch, np.int32)))
    found = [np.concatenate(parts) for parts in zip(*kept, strict=True)]
    return float_codes(found[0], call.outputs[0]), float_codes(found[1], call.outputs[1]), found[2]


@kernel("DETECTION_POSTPROCESSING")
def detection_postprocessing(
    call: Call,
    scores: Array,
    deltas: Array,
    anchors: Array,
    scale_y: float,
    scale_x: float,
    scale_h: float,
    scale_w: float,
    regular_nms: bool,
    max_detections: int,
    max_classes_per_detection: int,
    max_detections_per_class: int,
    score_threshold: float,
    iou_threshold: float,
    background_in_label: bool,
) -> tuple[Array, ...]:
    numbers, boxes = widen(scores), _decoded(widen(deltas), widen(anchors), (scale_y, scale_x, scale_h, scale_w))
    outputs = [np.zeros(type_.shape, type_.dtype) for type_ in call.outputs]
    for batch in range(len(scores)):
        ranks, places = numbers[batch], boxes[batch]
        if regular_nms:
            rows, labels = _by_class(
                ranks, places, max_detections, max_detections_per_class, score_threshold, iou_threshold
            )
        else:
            rows, labels = _by_box(
                ranks, places, max_detections, max_classes_per_detection, score_threshold, iou_threshold
            )
        count = len(rows)
        outputs[0][batch, :count] = ranks[rows, labels]
        outputs[1][batch, :count] = places[rows]
        outputs[2][batch, :count] = labels - (not background_in_label)
        outputs[3][batch] = count
    return tuple(outputs)


def _decoded(deltas: Array, anchors: Array, scales: tuple[float, ...]) -> Array:
    """Boxes (y1, x1, y2, x2) from anchors (y, x, h, w) and deltas (batch, n, ≥ 4)."""
    divisors = np.asarray(scales, np.float32)
    centres = anchors[:, :2] + anchors[:, 2:] * deltas[..., :2] / divisors[:2]
    halves = anchors[:, 2:] * np.exp(deltas[..., 2:4] / divisors[2:]) * np.float32(0.5)
    return np.concatenate((centres - halves, centres + halves), axis=-1)


def _by_class(
    scores: Array, boxes: Array, most: int, most_per_class: int, score_threshold: float, iou_threshold: float
) -> tuple[Array, Array]:
    """Boxes and classes of the best detections, where boxes of one class suppress each other."""
    classes = scores.shape[1]
    picked = []
    for label in range(1, classes):
        ranks = np.ascontiguousarray(scores[:, label])
        candidates = np.flatnonzero(ranks > np.float32(score_threshold))
        picked.append(_suppress(candidates, ranks, boxes, most_per_class, _hard(iou_threshold)) * classes + label)
    best = _falling(np.concatenate(picked), scores.reshape(-1))[:most]
    return best // classes, best % classes


def _by_box(
    scores: Array, boxes: Array, most: int, most_classes: int, score_threshold: float, iou_threshold: float
) -> tuple[Array, Array]:
    """Boxes and classes of the best detections, where boxes of any class suppress each other."""
    ranks = scores[:, 1:].max(axis=1)
    candidates = np.flatnonzero(ranks > np.float32(score_threshold))
    rows = _suppress(candidates, ranks, boxes, most, _hard(iou_threshold))
    labels = 1 + np.argsort(-scores[rows, 1:], axis=1, kind="stable")[:, :most_classes]
    return np.repeat(rows, labels.shape[1]), labels.reshape(-1)
