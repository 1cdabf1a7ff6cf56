"""One module a family of rules; each row is a one-node model, held to onnx.reference at every level."""
