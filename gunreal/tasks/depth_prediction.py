"""Depth prediction: from what is seen, tell how far away things are (Mirowski et al. 2017, section 3.1)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from gunreal.experience.replay import Replay
from gunreal.experience.spec import RecordedField, Spec
from gunreal.tasks.base import AuxiliaryTask, ReplaySequence, pad, uniform_sequence

# A z-buffer is bunched at its far end: there, those of the paper's bands: (d / 255)^10 of 0.05, 0.175, ... 0.8.
Z_BUFFER = (189, 215, 227, 235, 241, 246, 250)
# Depth that grows with the distance needs its bands at the near end, each half as wide again as the one before it.
LINEAR = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)


@dataclasses.dataclass(frozen=True)
class DepthPrediction(AuxiliaryTask):
    """Classifies the depth of a coarse grid of points of the frame into bands. The environment must give "depth".

    Classes, as the paper found regression to learn worse. There it learns from A3C's rollouts; here from replayed
    sequences, which bring other frames into the batch: unlike a return, a depth never becomes outdated.

    The paper cuts eight bands out of the tenth power of the depth, for more detail far away. That suits DeepMind Lab's
    z-buffer, bunched at its far end; ViZDoom's grows with the distance, and all of it would be in the first band.
    So the bands are the paper's at the far end and geometric at the near end; one that never occurs costs nothing. The
    paper's alone are `edges=[189, 215, 227, 235, 241, 246, 250]`.

    Options:
      rows, columns: points of the grid. It lies over the middle half of the height, as floor and ceiling tell little.
      edges: ascending, 1 to 255, where the bands but the first begin; a band more than edges.
    """

    name = "depth"
    weight: float = 0.1
    rows: int = 4
    columns: int = 16
    edges: tuple[int, ...] = (*LINEAR, *Z_BUFFER)

    def check(self, spec: Spec) -> None:
        if not (spec.is_image and spec.dtype == "uint8"):
            raise ValueError(
                f"depth needs image observations and a map 'depth', uint8, beside them in a Dict, and "
                f"these are {spec.dtype} {'x'.join(map(str, spec.frame))}: leave depth out of the tasks"
            )
        height, width = spec.frame[1:]
        for name, count, most in (("rows", self.rows, height // 2), ("columns", self.columns, width)):
            if not 1 <= count <= most:
                raise ValueError(
                    f"depth.{name} is {count}: choose it from 1 to {most} for frames of {height}x{width} pixels"
                )
        edges = list(self.edges)
        if not edges or edges != sorted(set(edges)) or not 1 <= edges[0] <= edges[-1] <= 255:
            raise ValueError(f"depth.edges is {edges}: give ascending numbers from 1 to 255")

    def record(self, spec: Spec) -> dict[str, RecordedField]:
        """The points of the depth map: 64 bytes of the 7 kB of 84x84 pixels. The map is uint8 `[H, W]`, 255 far."""
        return {"depth": RecordedField("depth", (self.rows, self.columns), "uint8", self.points)}

    def points(self, depth: np.ndarray) -> np.ndarray:
        """The grid's points of depth maps `[n, H, W]`, of any size from the grid's up."""
        return subsample(depth, self.rows, self.columns)

    def sample(self, replay: Replay, rng: np.random.Generator) -> ReplaySequence | None:
        return uniform_sequence(replay, rng)

    def targets(self, replay: Replay, sequence: ReplaySequence, bootstrap: np.ndarray | None) -> dict[str, np.ndarray]:
        """Each point's "band", int32 `[t_max, rows, columns]`, 0 the nearest."""
        bands = np.digitize(replay.get("depth", *sequence), self.edges)
        return {"band": pad(bands.astype(np.int32), replay.spec.t_max)}

    def head(self, spec: Spec) -> Any:
        """Logits `[B, T, rows, columns, bands]` through 128 units, as in the paper."""
        from keras import Sequential, layers

        shape = (-1, self.rows, self.columns, len(self.edges) + 1)
        hidden, last = layers.Dense(128, activation="relu"), layers.Dense(int(np.prod(shape[1:])))
        return Sequential([hidden, last, layers.Reshape(shape)], name="depth")

    def loss(self, outputs: Any, batch: Mapping[str, Any]) -> Any:
        """Cross-entropy, the mean over the points and steps."""
        from keras import ops

        from gunreal.learning.losses import masked_mean

        error = ops.sparse_categorical_crossentropy(batch["band"], outputs, from_logits=True)
        return masked_mean(ops.mean(error, axis=(2, 3)), batch["mask"])


def subsample(depth: np.ndarray, rows: int, columns: int) -> np.ndarray:
    """The pixels at the centres of a grid of `rows` x `columns` cells over the middle half of the height.

    Pixels, not means of cells: the mean across an edge is a distance at which there is nothing.

    Args:
      depth: `[..., H, W]`.

    Returns:
      `[..., rows, columns]`, of the same type.
    """
    height, width = depth.shape[-2:]
    row = height // 4 + (2 * np.arange(rows) + 1) * (height // 2) // (2 * rows)
    column = (2 * np.arange(columns) + 1) * width // (2 * columns)
    return depth[..., row[:, None], column]
