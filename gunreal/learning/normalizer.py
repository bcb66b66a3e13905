"""Running means and deviations: of what the agents observe, and of the returns that the value learns."""

from __future__ import annotations

from typing import Any, NamedTuple


class Moments(NamedTuple):
    """Mean and variance of some samples.

    Attributes:
      mean: float32 `[*shape]`.
      variance: float32 `[*shape]`, of the population.
      count: float32 scalar, the number of samples.
    """

    mean: Any
    variance: Any
    count: Any


def moments(x: Any, weight: Any, axes: tuple[int, ...]) -> Moments:
    """Moments of `x` over `axes`, kept as axes of length 1 where they are not the first.

    Args:
      x: float32 `[N, ...]`.
      weight: float32 `[N]`, 1 for the samples that count and 0 for the others.
      axes: the first one and any others.
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


def merge(old: Moments, new: Moments, most: float) -> Moments:
    """Moments of both sets of samples together (Chan, Golub and LeVeque 1979).

    Args:
      old: what is known so far.
      new: what is added.
      most: the count at which the old samples start to be forgotten: from there on, a moving average.
    """
    from keras import ops

    count = old.count + new.count
    share = new.count / ops.maximum(count, 1.0)
    difference = new.mean - old.mean
    mean = old.mean + difference * share
    variance = old.variance + (new.variance - old.variance) * share + ops.square(difference) * share * (1 - share)
    return Moments(mean, variance, ops.minimum(count, most))


class Statistics:
    """Moments that a network keeps as variables that no gradient changes.

    Before the first sample the mean is 0 and the deviation 1.

    Attributes:
      variables: mean, variance and count, of Keras.
    """

    def __init__(self, shape: tuple[int, ...], least: float, most: float):
        """Makes the variables.

        Args:
          shape: of the mean.
          least: the smallest deviation that is divided by.
          most: see `merge`.
        """
        import keras

        self._least, self._most = least, most
        make = keras.Variable
        self.variables = [
            make("zeros", shape, "float32", trainable=False, name="mean"),
            make("ones", shape, "float32", trainable=False, name="variance"),
            make("zeros", (), "float32", trainable=False, name="count"),
        ]

    def now(self) -> Moments:
        """What is known so far."""
        return Moments(*(variable.value for variable in self.variables))

    def merged(self, new: Moments) -> Moments:
        """What is known with `new` samples."""
        return merge(self.now(), new, self._most)

    def deviation(self, known: Moments) -> Any:
        """The deviation of `known` moments, no smaller than the least."""
        from keras import ops

        return ops.maximum(ops.sqrt(known.variance), self._least)
