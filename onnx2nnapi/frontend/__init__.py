"""The frontend: an ONNX model becomes a Graph in the ONNX dialect, of the newest opset, with every shape known."""
