"""The output of a run: metrics, TensorBoard events, checkpoints, videos and the display."""
