"""Pictures of frames and maps, for videos and for `gunreal watch`."""

from __future__ import annotations

import base64

import numpy as np


def colors(frame: np.ndarray) -> np.ndarray:
    """A frame, gray or RGB uint8 `[c, H, W]`, in RGB, uint8 `[H, W, 3]`."""
    picture = np.moveaxis(frame, 0, -1)
    return np.broadcast_to(picture, (*picture.shape[:2], 3))


def heat(values: np.ndarray, high: float, low: float = 0.0) -> np.ndarray:
    """A map `[h, w]` in RGB, uint8 `[h, w, 3]`, from dark at `low` to bright at `high`."""
    import cv2

    gray = (np.clip((values - low) / max(high - low, 1e-6), 0, 1) * 255).astype(np.uint8)
    return cv2.applyColorMap(gray, cv2.COLORMAP_INFERNO)[..., ::-1]


def data_url(picture: np.ndarray) -> str:
    """A picture uint8 `[h, w, 3]` as the address of a PNG that holds it."""
    import cv2

    _, png = cv2.imencode(".png", picture[..., ::-1])
    return f"data:image/png;base64,{base64.b64encode(png.tobytes()).decode()}"
