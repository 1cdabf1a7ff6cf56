"""ONNX's own backend test suites, run through convert and the host interpreter."""
