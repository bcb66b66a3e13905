"""Depth prediction: how far away are the things in the frame? (Mirowski et al. 2017, section 3.1)"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from gunreal.config.schema import ConfigError
from gunreal.experience.replay import Replay
from gunreal.experience.sequences import Sequences, pad
from gunreal.experience.spec import RecordedField, Spec
from gunreal.learning.task import AuxiliaryTask

# The values of a z-buffer cluster at its far end. These are the paper's bands: (d / 255)^10 of 0.05, 0.175, ... 0.8.
Z_BUFFER = (189, 215, 227, 235, 241, 246, 250)
# A depth that is linear in the distance needs bands at the near end, each about 1.5 times as wide as the last.
LINEAR = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)


@dataclasses.dataclass(frozen=True)
class DepthPrediction(AuxiliaryTask):
    """Classifies the depth at a coarse grid of points of the frame into bands. The environment must provide "depth".

    The task is a classification because the paper found that regression learns worse. The paper learns from A3C's
    rollouts. This task learns from replayed sequences, which add other frames to the batch. Unlike a return, a depth
    never becomes outdated.

    The paper divides the tenth power of the depth into eight bands, for more detail far away. That suits DeepMind Lab's
    z-buffer, whose values cluster at the far end. ViZDoom's depth is linear in the distance and would fall entirely
    into the first band. The default bands are therefore the paper's at the far end and geometric at the near end. A
    band that never occurs costs nothing. For the paper's bands alone use
    `edges=[189, 215, 227, 235, 241, 246, 250]`.

    Options:
      rows, columns: size of the grid in points. It covers the middle half of the height, because floor and ceiling
        contain little information.
      edges: lower bounds of all bands except the first, ascending, from 1 to 255.
    """

    name = "depth"
    weight: float = 0.1
    rows: int = 4
    columns: int = 16
    edges: tuple[int, ...] = (*LINEAR, *Z_BUFFER)

    def check(self, spec: Spec) -> None:
        if not (spec.is_image and spec.dtype == "uint8"):
            raise ValueError(
                f"depth needs image observations and a uint8 map 'depth' in the same Dict, but these are "
                f"{spec.dtype} {'x'.join(map(str, spec.frame))}: leave depth out of the tasks"
            )
        height, width = spec.frame[1:]
        for name, count, most in (("rows", self.rows, height // 2), ("columns", self.columns, width)):
            if not 1 <= count <= most:
                raise ValueError(f"depth.{name} is {count}: choose 1 to {most} for frames of {height}x{width} pixels")
        edges = list(self.edges)
        if not edges or edges != sorted(set(edges)) or not 1 <= edges[0] <= edges[-1] <= 255:
            raise ValueError(f"depth.edges is {edges}: give ascending numbers from 1 to 255")

    def record(self, spec: Spec) -> dict[str, RecordedField]:
        """Stores the grid points of the depth map, uint8 `[H, W]` with 255 far. At 84x84 these are 64 bytes of 7 kB."""
        return {"depth": RecordedField("depth", (self.rows, self.columns), "uint8", Points(self.rows, self.columns))}

    def targets(self, replay: Replay, sequences: Sequences, bootstraps: Any) -> dict[str, Any]:
        """The "band" of each point, int32 `[N, t_max, rows, columns]`. Band 0 is the nearest."""
        xp, depth = replay.xp, replay.get("depth", sequences.first, replay.spec.t_max)
        bands = xp.searchsorted(xp.asarray(self.edges), xp.astype(depth, xp.int32), side="right")
        return {"band": pad(xp.astype(bands, xp.int32), sequences.length)}

    def head(self, spec: Spec) -> Any:
        """A layer for the logits `[B, T, rows, columns, bands]`, with 128 hidden units as in the paper."""
        from keras import Sequential, layers

        shape = (-1, self.rows, self.columns, len(self.edges) + 1)
        hidden, last = layers.Dense(128, activation="relu"), layers.Dense(int(np.prod(shape[1:])))
        return Sequential([hidden, last, layers.Reshape(shape)], name="depth")

    def show(self, outputs: Any, length: int) -> dict[str, Any]:
        """The most probable band of each point."""
        return {"band": outputs[-1].argmax(-1)}

    def loss(self, outputs: Any, batch: Mapping[str, Any]) -> Any:
        """Mean cross-entropy over points and steps."""
        from keras import ops

        from gunreal.learning.losses import masked_mean

        error = ops.sparse_categorical_crossentropy(batch["band"], outputs, from_logits=True)
        return masked_mean(ops.mean(error, axis=(2, 3)), batch["mask"])


@dataclasses.dataclass(frozen=True)
class Points:
    """Maps depth maps uint8 `[n, H, W]`, which must be at least as large as the grid, to its points."""

    rows: int
    columns: int

    def __call__(self, depth: np.ndarray) -> np.ndarray:
        if depth.dtype != np.uint8:
            raise ConfigError(f"depth needs a uint8 depth map, but this one is {depth.dtype}; scale it to 0..255")
        return subsample(depth, self.rows, self.columns)


def subsample(depth: np.ndarray, rows: int, columns: int) -> np.ndarray:
    """The pixels of `depth` `[..., H, W]` at the centers of a grid over the middle half of the height.

    Single pixels are used instead of cell means, because the mean across an edge is a depth that does not occur. The
    result is `[..., rows, columns]`, of the same dtype.
    """
    height, width = depth.shape[-2:]
    row = height // 4 + (2 * np.arange(rows) + 1) * (height // 2) // (2 * rows)
    column = (2 * np.arange(columns) + 1) * width // (2 * columns)
    return depth[..., row[:, None], column]
