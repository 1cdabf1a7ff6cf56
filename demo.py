"""`make demo`: converts models/digits.onnx, runs it on real handwritten digits and shows what it says."""

from __future__ import annotations

import collections
import pathlib
import sys
import tempfile
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

import onnx2nnapi

MODELS = pathlib.Path(__file__).resolve().parent / "models"
Array = NDArray[Any]
SHADES = np.array(list(" .:-=+*#@"))
COLUMNS = 6


def picture(image: Array) -> list[str]:
    """The lines of an [8, 8] image in 0 … 1, two characters a pixel."""
    return ["".join(shade * 2 for shade in row) for row in SHADES[(image * (len(SHADES) - 1)).round().astype(int)]]


def show_digits(images: Array, labels: Array, answers: Array) -> None:
    """A row of pictures, with what the network reads below each."""
    columns = [
        [*picture(image[0]), f"reads {answer.argmax()} ({answer.max():.0%})".ljust(16), f"it is {label}".ljust(16)]
        for image, label, answer in zip(images, labels, answers, strict=True)
    ]
    print("\n".join("   ".join(line) for line in zip(*columns, strict=True)))


def show_operations(model: onnx2nnapi.nnapi.Model) -> None:
    """Each NNAPI operation in order, its result's shape, and the ONNX nodes that it stands for."""
    description = model.to_dict(values=False)["main"]
    for number, operation in enumerate(description["operations"]):
        result = description["operands"][operation["outputs"][0]]
        shape, origin = "×".join(map(str, result["dimensions"])), ", ".join(operation.get("origin", []))
        print(f"{number:3}  {operation['op']:20} {result['type']:16} {shape:12} {origin}")
    counts = collections.Counter(operation["op"] for operation in description["operations"])
    print(f"in all: {', '.join(f'{count} {name}' for name, count in counts.most_common())}")


def main() -> int:
    """Convert, save, open, run; exit status 1 when the digits are misread."""
    with np.load(MODELS / "digits_samples.npz") as samples:
        images, labels = samples["images"], samples["labels"]
    with tempfile.TemporaryDirectory() as folder:
        target = pathlib.Path(folder) / "digits.nnapi"
        start = time.perf_counter()
        onnx2nnapi.convert(MODELS / "digits.onnx").save(target)
        seconds = time.perf_counter() - start
        program = onnx2nnapi.load(target)
        level = onnx2nnapi.nnapi.validate(program.model)
        print(f"digits.onnx -> digits.nnapi in {seconds:.2f} s: {target.stat().st_size} bytes, feature level {level}\n")
        show_operations(program.model)

        answers, times = [], []
        with onnx2nnapi.Session(target, backend="host") as session:
            for image in images[:, None]:
                start = time.perf_counter()
                answers.append(session.run({"image": image})["probabilities"][0])
                times.append(time.perf_counter() - start)
    right = np.argmax(answers, axis=1) == labels
    print("\nSix of the digits that the network was not trained on:\n")
    show_digits(images[:COLUMNS], labels[:COLUMNS], np.array(answers[:COLUMNS]))
    p50, p90 = np.percentile(times, [50, 90]) * 1e6
    print(f"\naccuracy: {right.sum()} of {right.size} held-out digits ({right.mean():.2%})")
    print(f"latency on the host: p50 {p50:.0f} µs, p90 {p90:.0f} µs over {len(times)} runs")
    return 0 if right.mean() > 0.97 else 1


if __name__ == "__main__":
    sys.exit(main())
