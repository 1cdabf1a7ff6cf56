"""`python cli.py …` runs onnx2nnapi's command from a checkout. It is never installed."""

from __future__ import annotations

from onnx2nnapi.cli import main

if __name__ == "__main__":
    main()
