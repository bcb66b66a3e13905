"""Pixel control: learn, for every cell of the picture, to act so that its pixels change most (GUNREAL section 2.2)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from gunreal.experience.replay import Replay
from gunreal.experience.returns import n_step_returns
from gunreal.experience.spec import Spec
from gunreal.tasks.base import AuxiliaryTask, ReplaySequence, pad, uniform_sequence

CELLS = 20  # along a side of the paper's grid


@dataclasses.dataclass(frozen=True)
class PixelControl(AuxiliaryTask):
    """n-step Q-learning of the change in each cell of the newest frame, gray or RGB, one Q function per cell.

    The geometry follows from the frame. A cell is a twentieth of the frame's shorter side, to the nearest pixel, so
    that the head, and the loss that is summed over cells, stay near the paper's whatever the resolution. The grid is
    the largest one of even sides that fits (the head's deconvolution makes such), in the centre of the frame:

      frame (pixels)   64  84  96  120  128  240
      cell (pixels)     3   4   5    6    6   12
      grid (cells)     20  20  18   20   20   20    along each side; 84: 4x4 cells of the 80x80 crop, the paper's

    Options:
      discount: gamma of the pixel changes.
      cell: side of a cell, in pixels; 0: the twentieth. The grid is derived from it likewise.
    """

    name = "pc"
    weight: float = 0.01
    discount: float = 0.9
    cell: int = 0

    def check(self, spec: Spec) -> None:
        if not (spec.is_image and spec.dtype == "uint8"):
            raise ValueError(
                f"pc needs image observations (uint8, channel x height x width), and these are {spec.dtype} "
                f"{'x'.join(map(str, spec.frame))}: leave pc out of the tasks"
            )
        if not 0 <= self.discount <= 1:
            raise ValueError(f"pc.discount is {self.discount}: choose one from 0 to 1")
        height, width = spec.frame[1:]
        largest = min(height, width) // 4  # the head's deconvolution makes 4x4 cells or more
        if largest < 1:
            raise ValueError(f"pc needs frames of 4x4 pixels or more, and these are {height}x{width}: leave pc out")
        if not 0 <= self.cell <= largest:
            raise ValueError(
                f"pc.cell is {self.cell}: leave it out, or choose 1 to {largest} for frames of {height}x{width}"
            )

    def cell_size(self, spec: Spec) -> int:
        """Side of a cell, in pixels."""
        return self.cell or max(1, round(min(spec.frame[1:]) / CELLS))

    def grid(self, spec: Spec) -> tuple[int, int]:
        """Cells along the height and the width; even, as a deconvolution of stride 2 makes them."""
        (height, width), cell = spec.frame[1:], self.cell_size(spec)
        return height // cell // 2 * 2, width // cell // 2 * 2

    @staticmethod
    def bootstrap(outputs: Any) -> Any:
        """`max_a Q(s, a)` of every cell, `[n, G, G]`, of the state behind the sequence."""
        from keras import ops

        return ops.max(outputs[:, 0], axis=1)

    def sample(self, replay: Replay, rng: np.random.Generator) -> ReplaySequence | None:
        return uniform_sequence(replay, rng)

    def targets(self, replay: Replay, sequence: ReplaySequence, bootstrap: np.ndarray | None) -> dict[str, np.ndarray]:
        """Per cell, `R_t = change_{t+1} + gamma_t R_{t+1}`.

        Returns:
          "returns" float32 `[t_max, *grid]` and "action" int32 `[t_max]`.
        """
        assert bootstrap is not None
        first, length = sequence
        spec = replay.spec
        frames = replay.get("frame", first, length + 1)
        discounts = replay.discounts(first, length, self.discount)
        changes = pixel_change(frames, self.cell_size(spec), self.grid(spec))
        returns = n_step_returns(changes, discounts, bootstrap)
        return {"returns": pad(returns, spec.t_max), "action": pad(replay.get("action", first, length), spec.t_max)}

    def head(self, spec: Spec) -> Any:
        """`Q` `[B, T, A, G, G]`; see `DuelingDeconvolution`."""
        from gunreal.tasks.pixel_control_head import DuelingDeconvolution

        return DuelingDeconvolution(spec.num_actions, self.grid(spec), name="pc")

    def loss(self, outputs: Any, batch: Mapping[str, Any]) -> Any:
        """Mean over the steps of the sum over the cells of `0.5 (R_t - Q(s_t, a_t))^2`.

        The factor 0.5 (the paper has none) is the one of the value loss, so that the weights of `pc` and `vr` compare.
        """
        from keras import ops

        from gunreal.learning.losses import masked_mean

        taken = ops.one_hot(batch["action"], outputs.shape[2], dtype=outputs.dtype)
        q_t = ops.einsum("btahw,bta->bthw", outputs, taken)
        return masked_mean(0.5 * ops.sum(ops.square(batch["returns"] - q_t), axis=(2, 3)), batch["mask"])


def pixel_change(frames: np.ndarray, cell: int, grid: tuple[int, int]) -> np.ndarray:
    """Mean absolute change of the pixels of each cell, on pixels in [0, 1]; over the channels too.

    Args:
      frames: uint8 `[T + 1, C, H, W]`, successive frames; the grid lies in their centre.
      cell: side of a cell in pixels.
      grid: cells along the height and the width.

    Returns:
      float32 `[T, *grid]`, from 0 to 1.
    """
    (steps, channels), (rows, columns) = frames.shape[:2], grid
    height, width = rows * cell, columns * cell
    top, left = (frames.shape[2] - height) // 2, (frames.shape[3] - width) // 2
    frames = frames[:, :, top : top + height, left : left + width]
    newer, older = frames[1:], frames[:-1]
    change = np.maximum(newer, older) - np.minimum(newer, older)  # |difference| without leaving uint8
    # NumPy adds whole rows quickly and short runs slowly: down the columns first, then across by strided slices.
    change = change.reshape(steps - 1, channels, rows, cell, width)
    total = np.zeros((steps - 1, rows, width), np.uint16 if channels * cell * 255 < 2**16 else np.uint32)
    for channel in range(channels):
        for row in range(cell):
            total += change[:, channel, :, row]
    cells = total[..., ::cell].astype(np.float32)
    for column in range(1, cell):
        cells += total[..., column::cell]
    return cells * np.float32(1 / (channels * cell * cell * 255))
