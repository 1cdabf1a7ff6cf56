"""`python -m onnx2nnapi` is the onnx2nnapi command."""

from __future__ import annotations

from onnx2nnapi.cli import main

if __name__ == "__main__":
    main(prog_name="onnx2nnapi")
