"""A network that keeps the contract, and networks that each break one rule of it; for the tests of networks."""

from __future__ import annotations

import dataclasses
import itertools

import keras
from defining import define
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


class Noisy(Plain):
    def body(self, x, seed):
        return layers.Dropout(0.5, name="noise")(super().body(x, seed))


class Seedless(Plain):
    def body(self, x, seed):
        return layers.Conv2D(4, 8, 8, kernel_initializer=keras.initializers.GlorotUniform(7))(x)

    def top(self, x, seed):
        return layers.Dense(8, kernel_initializer=keras.initializers.GlorotUniform(7))(x)


class Refusing(Plain):
    def check(self, spec):
        raise ValueError("it is for other observations")


class NoBody(Architecture):
    name = "no_body"


class NoArchitecture:
    name = "none"


def body(change):
    """First layers that return `change(x, y)`, where `y` is what those of `Plain` return."""
    return {"body": lambda self, x, seed: change(x, Plain.body(self, x, seed))}


def top(change):
    """Last layers that return `change(x, y)`, where `y` is what those of `Plain` return."""
    return {"top": lambda self, x, seed: change(x, Plain.top(self, x, seed))}


made = itertools.count()
define(__name__, Strided, Miscounted={"state": lambda self: 2 * self.hidden}, NoNumber={"state": lambda self: None})
define(
    __name__,
    Plain,
    Misnamed={"name": "my network"},
    Unannotated={"hidden": 64},
    Normalized=body(lambda x, y: layers.BatchNormalization()(y)),
    FixedLayout=body(lambda x, y: layers.Conv2D(4, 8, 8, data_format="channels_last")(x)),
    Sequences=body(lambda x, y: layers.Reshape((-1, 4))(y)),
    Twofold=body(lambda x, y: [x, y]),
    Unrepeatable=top(lambda x, y: layers.Dense(8, kernel_initializer=keras.initializers.GlorotUniform(next(made)))(x)),
    Renamed=top(lambda x, y: layers.Dense(8, name=f"top{next(made)}x")(x)),
    Infinite=top(lambda x, y: y / 0.0),
    Mixing=top(lambda x, y: y - keras.ops.mean(y, axis=0, keepdims=True)),
    Unflat=top(lambda x, y: layers.Reshape((1, 8))(layers.Dense(8)(x))),
    Unbatched={"top": lambda self, x, seed: Plain.top(self, keras.ops.reshape(x, (-1, 4)), seed)},
    Dead={"top": lambda self, x, seed: Plain.top(self, keras.ops.stop_gradient(x), seed)},
)
