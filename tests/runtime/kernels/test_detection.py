from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

from onnx2nnapi.errors import InvalidModelError
from tests.runtime.kernels.single import quantized, run

RNG = np.random.default_rng(5)
IMAGE = RNG.normal(size=(2, 12, 16, 3)).astype(np.float32)
BATCHES = np.array([0, 1, 1], np.int32)


def onnxruntime_result(op_type, feeds, **attrs):
    """The result of a one-node model in onnxruntime."""
    kinds = {"float32": TensorProto.FLOAT, "int64": TensorProto.INT64}
    inputs = [helper.make_tensor_value_info(name, kinds[x.dtype.name], x.shape) for name, x in feeds.items()]
    kind = TensorProto.INT64 if op_type == "NonMaxSuppression" else TensorProto.FLOAT
    graph = helper.make_graph(
        [helper.make_node(op_type, list(feeds), ["y"], **attrs)],
        "one",
        inputs,
        [helper.make_tensor_value_info("y", kind, None)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 16)], ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, feeds)[0]


# -- regions -----------------------------------------------------------------------------------------------------------

REGIONS = np.array([[2, 3, 21, 17], [0, 0, 31, 20], [7.5, 4.25, 9, 5]], np.float32)  # in pixels of twice the image
ALIGN = {"output_height": 3, "output_width": 2, "height_stride": 2.0, "width_stride": 2.0}


@pytest.mark.parametrize("ratio", [0, 1, 2])
@pytest.mark.parametrize("nchw", [False, True])
def test_roi_align_equals_onnxruntime(ratio, nchw):
    planes = np.ascontiguousarray(IMAGE.transpose(0, 3, 1, 2))
    expected = onnxruntime_result(
        "RoiAlign",
        {"x": planes, "rois": REGIONS, "batch": BATCHES.astype(np.int64)},
        output_height=3,
        output_width=2,
        sampling_ratio=ratio,
        spatial_scale=0.5,
        coordinate_transformation_mode="output_half_pixel",
    )
    result = run(
        "ROI_ALIGN",
        planes if nchw else IMAGE,
        REGIONS,
        BATCHES,
        **ALIGN,
        height_sampling_ratio=ratio,
        width_sampling_ratio=ratio,
        nchw=nchw,
    )
    np.testing.assert_allclose(result if nchw else result.transpose(0, 3, 1, 2), expected, atol=1e-5)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_roi_align_of_codes_is_near_that_of_floats(dtype):
    shift = 0 if dtype == np.uint8 else -128
    image = quantized(RNG.integers(0, 256, IMAGE.shape) + shift, 0.1, 100 + shift, dtype)
    regions = quantized(np.round(REGIONS * 8), 0.125, 0, np.uint16)
    how = {**ALIGN, "height_sampling_ratio": 2, "width_sampling_ratio": 2, "nchw": False}
    result = run("ROI_ALIGN", image, regions, BATCHES, **how, quant=[(0.2, 50 + shift)])
    real = run("ROI_ALIGN", image.real.astype(np.float32), regions.real.astype(np.float32), BATCHES, **how)
    np.testing.assert_allclose((result.astype(float) - 50 - shift) * 0.2, real, atol=0.25)


def pooled(image, region, height, width):
    """ROI_POOLING's definition, cell by cell."""
    x1, y1, x2, y2 = (int(np.floor(edge + 0.5)) for edge in region)
    step_y, step_x = max(y2 - y1 + 1, 1) / height, max(x2 - x1 + 1, 1) / width
    cells = np.zeros((height, width, image.shape[-1]), image.dtype)
    for i in range(height):
        for j in range(width):
            window = image[
                int(np.floor(y1 + i * step_y)) : int(np.ceil(y1 + (i + 1) * step_y)),
                int(np.floor(x1 + j * step_x)) : int(np.ceil(x1 + (j + 1) * step_x)),
            ]
            if window.size:
                cells[i, j] = window.max(axis=(0, 1))
    return cells


@pytest.mark.parametrize(("height", "width"), [(1, 1), (2, 4), (7, 3)])
def test_roi_pooling(height, width):
    how = {"output_height": height, "output_width": width, "height_stride": 2.0, "width_stride": 2.0, "nchw": False}
    regions = np.vstack([REGIONS, [[31, 23, 32, 24]]]).astype(np.float32)  # the last one reaches over the edge
    batches = np.array([0, 1, 1, 0], np.int32)
    expected = [pooled(IMAGE[batch], region / 2, height, width) for batch, region in zip(batches, regions, strict=True)]
    np.testing.assert_array_equal(run("ROI_POOLING", IMAGE, regions, batches, **how), expected)


def test_roi_pooling_of_codes_keeps_codes():
    image = quantized(RNG.integers(0, 256, IMAGE.shape), 0.1, 7)
    regions = quantized([[0, 0, 40, 40]], 0.125, 0, np.uint16)
    how = {"output_height": 2, "output_width": 2, "height_stride": 1.0, "width_stride": 1.0, "nchw": False}
    result = run("ROI_POOLING", image, regions, np.array([1], np.int32), **how)
    np.testing.assert_array_equal(result[0], pooled(image.codes[1], np.array([0, 0, 5, 5]), 2, 2))


@pytest.mark.parametrize(
    ("regions", "batches", "what"),
    [
        ([[0, 0, 33, 4]], [0], "no region of 12 × 16 pixels"),
        ([[-1, 0, 3, 4]], [0], "no region"),
        ([[5, 0, 3, 4]], [0], "no region"),
        ([[0, 0, 3, 4]], [2], "names batch 2, there are 2"),
    ],
)
def test_regions_outside_are_refused(regions, batches, what):
    how = {"output_height": 2, "output_width": 2, "height_stride": 2.0, "width_stride": 2.0, "nchw": False}
    with pytest.raises(InvalidModelError, match=what):
        run("ROI_POOLING", IMAGE, np.array(regions, np.float32), np.array(batches, np.int32), **how)


def test_quantized_regions_must_be_in_eighths():
    regions = quantized([[0, 0, 4, 4]], 0.25, 0, np.uint16)
    with pytest.raises(InvalidModelError, match=r"its scale must be 0.125"):
        run(
            "ROI_POOLING", quantized(np.zeros((1, 4, 4, 1)), 1.0), regions, np.array([0], np.int32), **ALIGN, nchw=False
        )


# -- keypoints ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("nchw", [False, True])
def test_heatmap_finds_the_peak_of_a_quadratic(nchw):
    size, peaks = 8, np.array([[[2.3, 5.1], [4.8, 1.6]], [[6.2, 6.4], [1.1, 3.0]]])  # (box, keypoint, (x, y))
    y, x = np.mgrid[:size, :size]
    maps = 9 - (x[..., None] - peaks[:, None, None, :, 0]) ** 2 - 2 * (y[..., None] - peaks[:, None, None, :, 1]) ** 2
    boxes = np.array([[10, 20, 50, 100], [0, 0, 8, 16]], np.float32)
    heat = maps.astype(np.float32)
    scores, places = run(
        "HEATMAP_MAX_KEYPOINT", np.ascontiguousarray(heat.transpose(0, 3, 1, 2)) if nchw else heat, boxes, nchw=nchw
    )
    extents = boxes[:, None, 2:] - boxes[:, None, :2]
    np.testing.assert_allclose(places, (peaks + 0.5) / size * extents + boxes[:, None, :2], atol=1e-3)
    np.testing.assert_allclose(scores, 9, atol=1e-4)


def test_heatmap_takes_the_first_maximum_of_a_plateau_as_it_is():
    scores, places = run(
        "HEATMAP_MAX_KEYPOINT", np.ones((1, 4, 4, 1), np.float32), np.array([[0, 0, 8, 8]], np.float32), nchw=False
    )
    np.testing.assert_array_equal(scores, [[1]])
    np.testing.assert_array_equal(places, [[[1, 1]]])  # the middle of the first of 4 × 4 cells


# -- boxes -------------------------------------------------------------------------------------------------------------


def test_boxes_are_moved_scaled_and_clipped():
    boxes = np.array([[10, 20, 30, 60], [0, 0, 8, 8]], np.float32)
    deltas = np.array([[0, 0, 0, 0, 0.5, -0.25, np.log(2), np.log(0.5)], [1, 1, 0, 0, -9, 0, 0, 9]], np.float32)
    images = np.array([[50, 40], [100, 12]], np.float32)  # (height, width)
    result = run("AXIS_ALIGNED_BBOX_TRANSFORM", boxes, deltas, np.array([0, 1], np.int32), images)
    expected = [
        [10, 20, 30, 50, 10, 20, 40, 40],  # the second: centre (30, 30), 40 wide, 20 high, cut at 40 columns
        [8, 8, 12, 16, 0, 0, 0, 100],
    ]
    np.testing.assert_allclose(result, expected, atol=1e-4)


def overlap(a, b):
    w, h = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    shared = max(w, 0) * max(h, 0)
    return shared / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - shared)


def random_boxes(rng, count):
    corner = rng.uniform(0, 20, (count, 2))
    return np.concatenate([corner, corner + rng.uniform(4, 20, (count, 2))], axis=1).astype(np.float32)


@pytest.mark.parametrize("kernel", [0, 1, 2])
@pytest.mark.parametrize("most", [-1, 3])
def test_suppression_box_by_box(kernel, most):
    rng = np.random.default_rng(11)
    count, classes, threshold, sigma, least = 12, 3, 0.4, 0.5, 0.3
    scores = rng.uniform(0, 1, (count, classes)).astype(np.float32)
    boxes = np.stack([random_boxes(rng, count) for _ in range(classes)], axis=1)
    batches = np.repeat([4, 7], [7, 5]).astype(np.int32)
    expected = []
    for batch in (4, 7):
        rows = np.flatnonzero(batches == batch)
        found = []
        for label in range(1, classes):
            live = {row: float(scores[row, label]) for row in rows if scores[row, label] > 0.2}
            taken = 0
            while live and taken != most:
                best = max(live, key=live.get)
                score = live.pop(best)
                found.append((score, label, best))
                taken += 1
                for row in list(live):
                    iou = overlap(boxes[best, label], boxes[row, label])
                    if kernel == 2:
                        live[row] *= np.exp(-iou * iou / sigma)
                    elif iou >= threshold:
                        live[row] *= (1 - iou) if kernel else 0
                    if live[row] < least:
                        del live[row]
        found = sorted(found, reverse=True)[: None if most < 0 else most]
        found = sorted(found, key=lambda entry: (entry[1], -entry[0]))
        expected += [(score, label, batch, row) for score, label, row in found]
    got = run(
        "BOX_WITH_NMS_LIMIT",
        scores,
        boxes.reshape(count, -1),
        batches,
        score_threshold=0.2,
        max_detections=most,
        nms_kernel=kernel,
        iou_threshold=threshold,
        sigma=sigma,
        nms_score_threshold=least,
    )
    np.testing.assert_allclose(got[0], [entry[0] for entry in expected], rtol=1e-5)
    np.testing.assert_array_equal(got[2], [entry[1] for entry in expected])
    np.testing.assert_array_equal(got[3], [entry[2] for entry in expected])
    np.testing.assert_array_equal(got[1], [boxes[row, label] for _, label, _, row in expected])


def test_suppression_of_nothing_gives_nothing():
    results = run(
        "BOX_WITH_NMS_LIMIT",
        np.full((3, 2), 0.1, np.float32),
        np.tile(np.array([0, 0, 1, 1], np.float32), (3, 2)),
        np.zeros(3, np.int32),
        score_threshold=0.5,
        max_detections=-1,
        nms_kernel=0,
        iou_threshold=0.5,
        sigma=0.5,
        nms_score_threshold=0.5,
    )
    assert [result.shape for result in results] == [(0,), (0, 4), (0,), (0,)]


def test_detection_equals_onnxruntimes_suppression():
    rng = np.random.default_rng(12)
    count, classes = 30, 4
    anchors = np.concatenate([rng.uniform(5, 20, (count, 2)), rng.uniform(4, 9, (count, 2))], axis=1).astype(np.float32)
    deltas = rng.normal(0, 0.5, (1, count, 4)).astype(np.float32)
    scores = rng.uniform(0, 1, (1, count, classes)).astype(np.float32)
    scales = {"scale_y": 10.0, "scale_x": 10.0, "scale_h": 5.0, "scale_w": 5.0}
    centres = anchors[:, :2] + deltas[0, :, :2] / 10 * anchors[:, 2:]
    halves = anchors[:, 2:] * np.exp(deltas[0, :, 2:] / 5) / 2
    boxes = np.concatenate([centres - halves, centres + halves], axis=1).astype(np.float32)
    selected = onnxruntime_result(
        "NonMaxSuppression",
        {
            "boxes": boxes[np.newaxis],
            "scores": np.ascontiguousarray(scores[:, :, 1:].transpose(0, 2, 1)),
            "most": np.array([6], np.int64),
            "overlap": np.array([0.3], np.float32),
            "least": np.array([0.4], np.float32),
        },
    )
    best = sorted(((scores[0, row, label + 1], label, row) for _, label, row in selected), reverse=True)[:10]
    got = run(
        "DETECTION_POSTPROCESSING",
        scores,
        deltas,
        anchors,
        **scales,
        regular_nms=True,
        max_detections=10,
        max_classes_per_detection=1,
        max_detections_per_class=6,
        score_threshold=0.4,
        iou_threshold=0.3,
        background_in_label=False,
    )
    assert got[3].tolist() == [len(best)]
    np.testing.assert_allclose(got[0][0, : len(best)], [score for score, _, _ in best])
    np.testing.assert_array_equal(got[2][0, : len(best)], [label for _, label, _ in best])
    np.testing.assert_allclose(got[1][0, : len(best)], boxes[[row for _, _, row in best]], rtol=1e-5)
    assert not got[0][0, len(best) :].any()


def test_fast_detection_suppresses_across_classes_and_names_the_best_of_them():
    scores = np.array([[[0, 0.9, 0.8, 0.1], [0, 0.2, 0.3, 0.85], [0, 0.1, 0.7, 0.6]]], np.float32)
    anchors = np.array([[5, 5, 4, 4], [5, 5, 4, 4.1], [50, 50, 4, 4]], np.float32)
    got = run(
        "DETECTION_POSTPROCESSING",
        scores,
        np.zeros((1, 3, 4), np.float32),
        anchors,
        scale_y=1.0,
        scale_x=1.0,
        scale_h=1.0,
        scale_w=1.0,
        regular_nms=False,
        max_detections=3,
        max_classes_per_detection=2,
        max_detections_per_class=1,
        score_threshold=0.1,
        iou_threshold=0.5,
        background_in_label=True,
    )
    assert got[3].tolist() == [4]  # two boxes of two classes each: the second anchor lies on the first
    np.testing.assert_allclose(got[0][0], [0.9, 0.8, 0.7, 0.6, 0, 0])
    np.testing.assert_array_equal(got[2][0], [1, 2, 2, 3, 0, 0])
    np.testing.assert_allclose(got[1][0, [0, 2]], [[3, 3, 7, 7], [48, 48, 52, 52]])


@pytest.mark.parametrize("nchw", [False, True])
def test_proposals_are_the_best_moved_anchors(nchw):
    rng = np.random.default_rng(13)
    height, width = 3, 4
    anchors = np.array([[-4, -4, 4, 4], [-8, -2, 8, 2]], np.float32)
    scores = rng.permutation(height * width * 2).reshape(1, height, width, 2).astype(np.float32)
    deltas = rng.normal(0, 0.2, (1, height, width, 8)).astype(np.float32)
    image = np.array([[48, 64]], np.float32)
    boxes = []
    for y in range(height):
        for x in range(width):
            for index, anchor in enumerate(anchors):
                dx, dy, dw, dh = deltas[0, y, x, index * 4 : index * 4 + 4]
                x1, y1, x2, y2 = anchor + np.array([x, y, x, y]) * 16
                cx, cy, w, h = (x1 + x2) / 2, (y1 + y2) / 2, x2 - x1, y2 - y1
                cx, cy, w, h = cx + dx * w, cy + dy * h, w * np.exp(dw), h * np.exp(dh)
                corners = np.array([cx - w / 2, cy - h / 2, cx + w / 2, cy + h / 2])
                boxes.append(np.clip(corners, 0, [64, 48, 64, 48]))
    order = np.argsort(-scores.reshape(-1))[:16]
    kept = []
    for index in order:
        size = boxes[index][2:] - boxes[index][:2]
        if (size > 3).all() and len(kept) < 8 and all(overlap(boxes[index], boxes[other]) < 0.2 for other in kept):
            kept.append(index)
    given = (scores, deltas)
    if nchw:
        given = tuple(np.ascontiguousarray(array.transpose(0, 3, 1, 2)) for array in given)
    got = run(
        "GENERATE_PROPOSALS",
        *given,
        anchors,
        image,
        height_stride=16.0,
        width_stride=16.0,
        pre_nms_max=16,
        post_nms_max=8,
        iou_threshold=0.2,
        min_size=3.0,
        nchw=nchw,
    )
    np.testing.assert_array_equal(got[0], scores.reshape(-1)[kept])
    np.testing.assert_allclose(got[1], np.array(boxes)[kept], atol=1e-4)
    np.testing.assert_array_equal(got[2], np.zeros(len(kept)))


def test_scores_keep_their_quantization():
    scores = quantized([[0, 200], [0, 100]], 1 / 256)
    boxes = quantized([[0, 0, 8, 8] * 2, [80, 80, 88, 88] * 2], 0.125, 0, np.uint16)
    how = {
        "score_threshold": 0.1,
        "max_detections": -1,
        "nms_kernel": 0,
        "iou_threshold": 0.5,
        "sigma": 1.0,
        "nms_score_threshold": 0.1,
    }
    results = run("BOX_WITH_NMS_LIMIT", scores, boxes, np.zeros(2, np.int32), **how)
    assert results[0].tolist() == [200, 100]
    assert results[1].tolist() == [[0, 0, 8, 8], [80, 80, 88, 88]]
