"""Random shifts of images, as in DrQ (Kostrikov et al. 2021)."""

from __future__ import annotations

import dataclasses

from gunreal.tasks import AuxiliaryTask


@dataclasses.dataclass(frozen=True)
class OfViews(AuxiliaryTask):
    """A task on images that are shifted by up to `shift` pixels."""

    shift: int = 4

    def check(self, spec):
        if not spec.is_image:
            raise ValueError(f"{self.name} needs image observations")

    def targets(self, replay, sequences, bootstraps):
        return {}


def shifted(net, most):
    """Another view of `net.observations`, each shifted by up to `most` pixels. Pixels of the edge are repeated."""
    from keras import ops

    observations = net.observations
    length, (height, width) = observations.shape[1], observations.shape[-2:]
    steps = ops.cast(ops.floor(net.draws(length, 2) * (2 * most + 1)), "int32") - most
    rows = ops.clip(ops.arange(height) + steps[..., :1], 0, height - 1)
    columns = ops.clip(ops.arange(width) + steps[..., 1:], 0, width - 1)
    moved = ops.take_along_axis(observations, rows[:, :, None, :, None], axis=-2)
    return ops.take_along_axis(moved, columns[:, :, None, None, :], axis=-1)
