"""What a run leaves and shows: metrics, TensorBoard events, checkpoints, videos, the display."""
