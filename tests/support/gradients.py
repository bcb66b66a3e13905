"""Which weights a task's loss reaches, for the tests of the tasks."""

import numpy as np
import tensorflow as tf

from gunreal.experience.replay import RESET
from gunreal.learning.network import Network
from gunreal.learning.registry import named


def batch_of(task, segment, count, seed=0, bootstrap_shape=(2, 32)):
    """Observations `[count * T, ...]` and what `task.loss` takes, made as the trainer does; bootstraps are random."""
    rng = np.random.default_rng(seed)
    replay = segment.agent(0)
    limit = task.length(replay.spec.t_max)
    observations, targets = [], []
    for _ in range(count):
        sequence = task.sample(replay, rng)
        rows = sequence.first + np.minimum(np.arange(limit), sequence.length - 1)
        observations.append(replay.observations(rows))
        flags = np.array([replay.get("flags", row, 1)[0] for row in rows.tolist()])
        mask = (np.arange(limit) < sequence.length) & (flags & RESET == 0)
        bootstrap = None if task.bootstrap is None else rng.random(bootstrap_shape, np.float32)
        targets.append(task.targets(replay, sequence, bootstrap) | {"mask": mask.astype(np.float32)})
    return np.concatenate(observations), {name: np.stack([t[name] for t in targets]) for name in targets[0]}


def gradients(task, segment, count=4, bootstrap_shape=(2, 32)):
    """The gradient's norm for every weight of a network with 32 hidden units by name; None where there is none."""
    spec = segment.layout.spec
    network = Network(spec, [task], named("small", hidden=32))
    observations, batch = batch_of(task, segment, count, bootstrap_shape=bootstrap_shape)
    with tf.GradientTape() as tape:
        features = network.torso.features(observations)
        features = type(features)(*(tf.reshape(x, (count, -1, x.shape[-1])) for x in features))
        loss = task.loss(network.task_outputs(task, features, batch), batch)
    found = tape.gradient(loss, [v.value for v in network.trainable_variables])
    norms = [None if g is None else float(tf.norm(g)) for g in found]
    return dict(zip(network.names, norms, strict=True))


def reached(task, segment, **options):
    """The layers that the loss reaches, and those that it does not."""
    norms = gradients(task, segment, **options)
    layers = {name.split("/")[0] if not name.startswith("torso") else name.rsplit("/", 1)[0] for name in norms}
    with_gradient = {layer for layer in layers if any(norm for n, norm in norms.items() if n.startswith(f"{layer}/"))}
    return with_gradient, layers - with_gradient
