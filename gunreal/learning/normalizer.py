"""Running means and standard deviations of observations and returns."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple


class Moments(NamedTuple):
    """Mean and variance of some samples.

    Attributes:
      mean: float32 `[*shape]`.
      variance: population variance, float32 `[*shape]`.
      count: number of samples, float32 scalar.
    """

    mean: Any
    variance: Any
    count: Any


def moments(x: Any, weight: Any, axes: tuple[int, ...]) -> Moments:
    """Moments of `x` over `axes`. The first axis is removed and the others are kept with length 1.

    Args:
      x: float32 `[N, ...]`.
      weight: float32 `[N]`, 1 for samples to use and 0 for others.
      axes: the first axis and any further ones.
    """
    from keras import ops

    weight = ops.reshape(weight, (-1, *[1] * (len(x.shape) - 1)))
    count = ops.sum(weight)
    each = ops.maximum(count, 1.0)
    inner = axes[1:]

    def mean_of(values: Any) -> Any:
        mean = ops.sum(values * weight, axis=0, keepdims=True) / each
        return (ops.mean(mean, axis=inner, keepdims=True) if inner else mean)[0]

    mean = mean_of(x)
    return Moments(mean, mean_of(ops.square(x - mean)), count)


def merge(old: Moments, new: Moments, most: float, ops: Any) -> Moments:
    """Moments of the union of two sets of samples (Chan, Golub and LeVeque 1979).

    Args:
      most: maximum count. Beyond it the result is a moving average that forgets old samples.
      ops: the module to compute with, `keras.ops` or NumPy.
    """
    count = old.count + new.count
    share = new.count / ops.maximum(count, 1.0)
    difference = new.mean - old.mean
    mean = old.mean + difference * share
    variance = old.variance + (new.variance - old.variance) * share + ops.square(difference) * share * (1 - share)
    return Moments(mean, variance, ops.minimum(count, most))


def deviation(known: Moments, least: float, ops: Any) -> Any:
    """The standard deviation of `known` moments, at least `least`. `ops` is as for `merge`."""
    return ops.maximum(ops.sqrt(known.variance), least)


def rescaled(kernel: Any, bias: Any, known: Moments, new: Moments, least: float, ops: Any) -> tuple[Any, Any]:
    """A layer that predicts with the `new` moments of its targets what it predicted with the `known` ones.

    This is PopArt (van Hasselt et al. 2016, section 2.2). At the first targets, the layer stays as it is, because it
    has learned nothing that would be kept.

    `kernel` and `bias` may be parts of the layer's. `least` and `ops` are as for `deviation`.
    """
    before, after = deviation(known, least, ops), deviation(new, least, ops)
    shifted = (before * bias + known.mean - new.mean) / after
    is_known = known.count > 0
    return ops.where(is_known, kernel * (before / after), kernel), ops.where(is_known, shifted, bias)


class Statistics:
    """Running moments in Keras variables that are not trained.

    Before the first sample the mean is 0 and the standard deviation is 1.

    Attributes:
      variables: mean, variance and count.
      least: lower bound of the standard deviation.
      most: maximum count, see `merge`.
    """

    def __init__(self, shape: tuple[int, ...], least: float, most: float):
        import keras

        self.least, self.most = least, most
        # A head of low precision may ask for features that they normalize.
        make = functools.partial(keras.Variable, dtype="float32", trainable=False, autocast=False)
        self.variables = [
            make("zeros", shape, name="mean"),
            make("ones", shape, name="variance"),
            make("zeros", (), name="count"),
        ]

    def now(self) -> Moments:
        """The current moments."""
        return Moments(*(variable.value for variable in self.variables))

    def merged(self, new: Moments) -> Moments:
        """The current moments merged with `new` ones."""
        from keras import ops

        return merge(self.now(), new, self.most, ops)

    def deviation(self, known: Moments) -> Any:
        """The standard deviation of `known` moments, at least the lower bound."""
        from keras import ops

        return deviation(known, self.least, ops)
