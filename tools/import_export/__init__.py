"""Stock checkpoints in and out, as checkpoints and as graphs of ONNX."""
