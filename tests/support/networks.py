"""A network that keeps the contract, and networks that each break one rule of it; for the tests of networks."""

from __future__ import annotations

import dataclasses

import keras
from keras import layers

from gunreal.learning.architecture import Architecture


@dataclasses.dataclass(frozen=True)
class Strided(Architecture):
    """One convolution and a recurrent cell with one state."""

    name = "strided"
    filters: int = 4
    stride: int = 8

    def state(self):
        return self.hidden

    def body(self, x, seed):
        return layers.Conv2D(self.filters, 8, self.stride, activation="relu")(x)

    def cell(self, seed):
        return layers.GRUCell(self.hidden)


@dataclasses.dataclass(frozen=True)
class Plain(Strided):
    """The same without memory."""

    def state(self):
        return 0

    def cell(self, seed):
        return None


class Compass(Plain):
    """Uses the numbers beside an image itself."""

    def body(self, x, seed, vector=None):
        x = layers.GlobalAveragePooling2D()(super().body(x, seed))
        return x if vector is None else layers.Concatenate()([x, layers.Dense(4)(vector)])


class Adrift(Compass):
    def body(self, x, seed, vector=None):
        return super().body(x, seed, None if vector is None else keras.ops.stop_gradient(layers.Dense(2)(vector)))


class Misnamed(Plain):
    name = "my network"


class Miscounted(Strided):
    def state(self):
        return 2 * self.hidden


class NoNumber(Strided):
    def state(self):
        return None


class Normalized(Plain):
    def body(self, x, seed):
        return layers.BatchNormalization()(super().body(x, seed))


class Seedless(Plain):
    def body(self, x, seed):
        return layers.Conv2D(4, 8, 8, kernel_initializer=keras.initializers.GlorotUniform(7))(x)

    def top(self, x, seed):
        return layers.Dense(8, kernel_initializer=keras.initializers.GlorotUniform(7))(x)


class Unrepeatable(Plain):
    made = 0

    def top(self, x, seed):
        Unrepeatable.made += 1
        return layers.Dense(8, kernel_initializer=keras.initializers.GlorotUniform(Unrepeatable.made))(x)


class Renamed(Plain):
    made = 0

    def top(self, x, seed):
        Renamed.made += 1
        return layers.Dense(8, name=f"top{Renamed.made}x")(x)


class FixedLayout(Plain):
    def body(self, x, seed):
        return layers.Conv2D(4, 8, 8, data_format="channels_last")(x)


class Infinite(Plain):
    def top(self, x, seed):
        return super().top(x, seed) / 0.0


class Mixing(Plain):
    def top(self, x, seed):
        x = super().top(x, seed)
        return x - keras.ops.mean(x, axis=0, keepdims=True)


class Unflat(Plain):
    def top(self, x, seed):
        return layers.Reshape((1, 8))(layers.Dense(8)(x))


class Sequences(Plain):
    def body(self, x, seed):
        return layers.Reshape((-1, 4))(super().body(x, seed))


class Twofold(Plain):
    def body(self, x, seed):
        return [x, super().body(x, seed)]


class Unbatched(Plain):
    def top(self, x, seed):
        return super().top(keras.ops.reshape(x, (-1, 4)), seed)


class Dead(Plain):
    def top(self, x, seed):
        return super().top(keras.ops.stop_gradient(x), seed)


class Refusing(Plain):
    def check(self, spec):
        raise ValueError("it is for other observations")


class NoBody(Architecture):
    name = "no_body"


class Unannotated(Plain):
    hidden = 64


class NoArchitecture:
    name = "none"
