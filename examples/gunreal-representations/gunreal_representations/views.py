"""Random shifts of images, as in DrQ (Kostrikov et al. 2021), and the contrast of views."""

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


def contrast(queries, keys, mask):
    """InfoNCE: which of all keys belongs to each query? The loss, and the share of right answers as a metric.

    `queries` and `keys` are `[B, T, units]`. Where `mask` `[B, T]` is 0, there is neither a query nor a key.
    """
    from keras import ops

    queries, keys = (ops.reshape(x, (-1, x.shape[-1])) for x in (queries, keys))
    mask = ops.reshape(mask, (-1,))
    logits = ops.matmul(queries, ops.transpose(keys)) + (mask - 1) * 1e9
    own, count = ops.sum(queries * keys, axis=-1), ops.maximum(ops.sum(mask), 1.0)
    right = ops.cast(own >= ops.max(logits, axis=-1) - 1e-6, "float32")
    loss = ops.sum(mask * (ops.logsumexp(logits, axis=-1) - own)) / count
    return loss, {"accuracy": ops.sum(mask * right) / count}
