"""Pixel control: learn to maximize the change of pixels in every cell of the frame (GUNREAL section 2.2)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from gunreal.config.plugins import option
from gunreal.experience.replay import Replay
from gunreal.experience.returns import n_step_returns
from gunreal.experience.sequences import Sequences, pad
from gunreal.experience.spec import Spec
from gunreal.learning.task import AuxiliaryTask

CELLS = 20  # cells along each side of the paper's grid


@dataclasses.dataclass(frozen=True)
class PixelControl(AuxiliaryTask):
    """n-step Q-learning of the change in each cell of the newest frame (gray or RGB), with one Q function per cell.

    The grid is derived from the frame. The side of a cell is a twentieth of the frame's shorter side, rounded to whole
    pixels. At any resolution, the size of the head and the loss summed over cells thus stay close to the paper's. The
    grid is the largest one with even sides that fits, in the center of the frame. Even sides suit the head's
    deconvolution.

      frame (pixels)   64  84  96  120  128  240
      cell (pixels)     3   4   5    6    6   12
      grid (cells)     20  20  18   20   20   20    along each side

    Frames of 84 pixels give the paper's grid: 4x4 cells of the 80x80 crop.

    Options:
      discount: discount factor gamma of the pixel changes.
      cell: side of a cell, in pixels. 0 means a twentieth of the frame. The grid is derived from the cell.
    """

    name = "pc"
    weight: float = 0.01
    discount: float = option(0.9, low=0, high=1)
    cell: int = 0

    def check(self, spec: Spec) -> None:
        if not (spec.is_image and spec.dtype == "uint8"):
            raise ValueError(
                f"pc needs image observations (uint8, channel x height x width), but these are {spec.dtype} "
                f"{'x'.join(map(str, spec.frame))}: leave pc out of the tasks"
            )
        height, width = spec.frame[1:]
        largest = min(height, width) // 4  # the head's deconvolution needs at least 4x4 cells
        if largest < 1:
            raise ValueError(f"pc needs frames of 4x4 pixels or more, but these are {height}x{width}: leave pc out")
        if not 0 <= self.cell <= largest:
            raise ValueError(
                f"pc.cell is {self.cell}: leave it out, or choose 1 to {largest} for frames of {height}x{width}"
            )

    def cell_size(self, spec: Spec) -> int:
        """The side of a cell, in pixels."""
        return self.cell or max(1, round(min(spec.frame[1:]) / CELLS))

    def grid(self, spec: Spec) -> tuple[int, int]:
        """Number of cells along the height and the width. Both are even, to suit a deconvolution of stride 2."""
        (height, width), cell = spec.frame[1:], self.cell_size(spec)
        return height // cell // 2 * 2, width // cell // 2 * 2

    @staticmethod
    def bootstrap(outputs: Any) -> Any:
        """`max_a Q(s, a)` of every cell in the state after the sequence, `[n, *grid]`."""
        from keras import ops

        return ops.max(outputs[:, 0], axis=1)

    def targets(self, replay: Replay, sequences: Sequences, bootstraps: Any) -> dict[str, Any]:
        """n-step returns of every cell, `R_t = change_{t+1} + gamma_t R_{t+1}`.

        Returns:
          "returns" float32 `[N, t_max, *grid]` and "action" int32 `[N, t_max]`.
        """
        spec, (first, length) = replay.spec, sequences
        frames = replay.get("frame", first, spec.t_max + 1)
        discounts = replay.discounts(first, spec.t_max, self.discount)
        changes = pixel_change(frames, self.cell_size(spec), self.grid(spec))
        returns = n_step_returns(changes, discounts, bootstraps, length)
        return {"returns": returns, "action": pad(replay.get("action", first, spec.t_max), length)}

    def head(self, spec: Spec) -> Any:
        """A layer for `Q`, `[B, T, A, *grid]`. See `DuelingDeconvolution`."""
        from gunreal.tasks.pixel_control_head import DuelingDeconvolution

        return DuelingDeconvolution(spec.num_actions, self.grid(spec), name="pc")

    def show(self, outputs: Any, length: int) -> dict[str, Any]:
        """`max_a Q` of every cell, and the mean Q of every action."""
        return {"largest Q": outputs[-1].max(0), "mean Q": outputs[-1].mean((1, 2))}

    def loss(self, outputs: Any, batch: Mapping[str, Any]) -> Any:
        """`0.5 (R_t - Q(s_t, a_t))^2`, summed over cells and averaged over steps.

        The factor 0.5 is not in the paper. It matches the value loss, so that the weights of `pc` and `vr` are
        comparable.
        """
        from keras import ops

        from gunreal.learning.losses import masked_mean

        taken = ops.one_hot(batch["action"], outputs.shape[2], dtype=outputs.dtype)
        q_t = ops.einsum("btahw,bta->bthw", outputs, taken)
        return masked_mean(0.5 * ops.sum(ops.square(batch["returns"] - q_t), axis=(2, 3)), batch["mask"])


def pixel_change(frames: Any, cell: int, grid: tuple[int, int]) -> Any:
    """Mean absolute change of the pixels of each cell between successive frames, averaged over channels.

    Args:
      frames: successive frames, uint8 `[N, T + 1, C, H, W]`. The grid lies in their center.
      cell: side of a cell, in pixels.
      grid: number of cells along the height and the width.

    Returns:
      float32 `[N, T, *grid]`, for pixels scaled to [0, 1].
    """
    xp = frames.__array_namespace__()
    (count, steps, channels), (rows, columns) = frames.shape[:3], grid
    height, width = rows * cell, columns * cell
    top, left = (frames.shape[3] - height) // 2, (frames.shape[4] - width) // 2
    frames = frames[..., top : top + height, left : left + width]
    newer, older = frames[:, 1:], frames[:, :-1]
    change = xp.maximum(newer, older) - xp.minimum(newer, older)  # |difference| without leaving uint8
    # NumPy adds whole rows quickly and short runs slowly. So sum down the columns first, then across by strided slices.
    change = change.reshape(count, steps - 1, channels, rows, cell, width)
    total = xp.zeros((count, steps - 1, rows, width), dtype=xp.uint16 if channels * cell * 255 < 2**16 else xp.uint32)
    for channel in range(channels):
        for row in range(cell):
            total += change[:, :, channel, :, row]
    cells = xp.astype(total[..., ::cell], xp.float32)
    for column in range(1, cell):
        cells += total[..., column::cell]
    return cells * np.float32(1 / (channels * cell * cell * 255))
