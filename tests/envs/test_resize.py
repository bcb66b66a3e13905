"""Resizing by area, against its definition and against OpenCV."""

import cv2
import numpy as np
import pytest

from gunreal.envs.resize import AreaResize


def coverage(source, target):
    """Share of each source pixel in each target pixel `[target, source]`, one by one."""
    weights = np.zeros((target, source))
    for i in range(target):
        start, end = i * source / target, (i + 1) * source / target
        for k in range(source):
            weights[i, k] = max(0.0, min(end, k + 1) - max(start, k)) / (end - start)
    return weights


@pytest.mark.parametrize("size", [(84, 84), (42, 64), (83, 97), (7, 160), (210, 1)])
@pytest.mark.parametrize("channels", [(), (3,)])
def test_pixels_are_means_of_what_they_cover(size, channels):
    screen = np.random.default_rng(0).integers(0, 256, (210, 160, *channels)).astype(np.uint8)
    before = screen.copy()
    out = np.zeros((*channels, *size), np.uint8)
    resize = AreaResize(screen.shape, size)
    resize(screen, out)
    rows, columns = coverage(210, size[0]), coverage(160, size[1])
    exact = np.einsum("ih,hw...,jw->...ij", rows, screen.astype(np.float64), columns)
    assert np.abs(out - exact).max() < 0.5 + 1e-4
    np.testing.assert_array_equal(screen, before)
    theirs = cv2.resize(screen, size[::-1], interpolation=cv2.INTER_AREA)
    sure = np.abs(exact % 1 - 0.5) > 1e-4  # others are rounded up or down
    np.testing.assert_array_equal(out[sure], (theirs.transpose(2, 0, 1) if channels else theirs)[sure])
    resize(np.full_like(screen, 255), out)  # nothing of the last screen is left, and nothing overflows
    assert (out == 255).all()


def test_it_writes_to_arrays_with_another_axis_or_gaps():
    screen = np.arange(24, dtype=np.uint8).reshape(4, 6)
    ring = np.zeros((2, 1, 2, 6), np.uint8)
    AreaResize((4, 6), (2, 3))(screen, ring[1, :, :, ::2])
    assert ring[1, 0, :, ::2].tolist() == [[4, 6, 8], [16, 18, 20]]  # of 3.5, 5.5, 7.5, ...
    assert not ring[0].any() and not ring[1, 0, :, 1::2].any()
