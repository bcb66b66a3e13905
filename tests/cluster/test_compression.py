from __future__ import annotations

import ml_dtypes
import numpy as np

from gunreal.cluster.compression import Packer, unpack


def test_float32_travels_as_it_is():
    gradient = np.array([1.1, np.nan], np.float32)
    assert Packer("float32").pack(gradient) is gradient and unpack(gradient) is gradient


def test_bfloat16_rounds_to_the_nearest():
    rng = np.random.default_rng(0)
    special = np.array([0.0, -0.0, 1.00390625, np.inf, -np.inf, np.nan, 3e38], np.float32)
    gradient = np.concatenate([rng.normal(size=1000).astype(np.float32), special])
    packed = Packer("bfloat16").pack(gradient)
    assert packed.dtype == np.uint16
    np.testing.assert_array_equal(unpack(packed), gradient.astype(ml_dtypes.bfloat16).astype(np.float32))


def test_the_error_is_carried_to_the_next_gradient():
    """What 1,000 gradients of the same small size add up to is right, although each of them is rounded down."""
    packer, gradient = Packer("bfloat16"), np.full(3, 1.003, np.float32)
    total = sum(unpack(packer.pack(gradient)).astype(np.float64) for _ in range(1000))
    np.testing.assert_allclose(total, 1003, rtol=1e-5)
    assert abs(unpack(Packer("bfloat16").pack(gradient))[0] - 1.003) > 2e-3


def test_an_overflow_does_not_stay_in_the_error():
    packer = Packer("bfloat16")
    packer.pack(np.array([np.inf, 1.0], np.float32))
    assert unpack(packer.pack(np.ones(2, np.float32))).tolist() == [1.0, 1.0]
