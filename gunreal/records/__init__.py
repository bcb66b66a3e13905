"""What a run leaves and shows: metrics, events, checkpoints, folders, videos, the display."""
