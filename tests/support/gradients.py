"""Which weights a task's loss reaches, and a learner of a task alone; for the tests of the tasks."""

import numpy as np
import tensorflow as tf
from learners import A3C

from gunreal.config.schema import Config
from gunreal.experience.replay import RESET
from gunreal.experience.sequences import DRAWS
from gunreal.experience.synthetic import synthetic_segment
from gunreal.learning.backend import make_learner
from gunreal.learning.network import Network
from gunreal.learning.registry import named
from gunreal.tasks import calls


def batch_of(task, segment, count, seed=0, bootstrap_shape=(2, 32)):
    """Observations `[count * T, ...]` and what `task.loss` takes, made as the trainer does; bootstraps are random."""
    rng = np.random.default_rng(seed)
    replay = segment.replay(np.zeros(count, int))
    rows = np.arange(task.length(replay.spec.t_max))
    first, length = sequences = calls.sample(task, replay, rng.random((count, DRAWS), np.float32))
    assert length.all()
    steps = first[:, None] + np.minimum(rows, length[:, None] - 1)
    observations = replay.observations(steps).reshape(-1, *replay.spec.observation)
    flags = np.stack([replay.get("flags", step, 1)[:, 0] for step in steps.T], axis=1)
    mask = (rows < length[:, None]) & (flags & RESET == 0)
    bootstraps = None if task.bootstrap is None else rng.random((count, *bootstrap_shape), np.float32)
    return observations, calls.targets(task, replay, sequences, bootstraps) | {"mask": mask.astype(np.float32)}


def learner_of(task, spec, count=4):
    """A learner of the task alone, and a batch for it of `count` sequences."""
    observations, batch = batch_of(task, synthetic_segment(spec, task.record(spec), 200), count)
    rows = {"observations": observations.reshape(count, -1, *spec.observation)}
    nothing = np.zeros((count, spec.t_max), np.float32)
    base = {"action": nothing.astype(np.int32), "returns": nothing, "mask": nothing}
    learner = make_learner(Network(spec, [task], named("small", hidden=32)), Config(**A3C, entropy=0.0))
    return learner, {"base": base | rows, task.name: batch | rows}


def gradients(task, segment, count=4, bootstrap_shape=(2, 32)):
    """The gradient's norm for every weight of a network with 32 hidden units by name; None where there is none."""
    spec = segment.layout.spec
    network = Network(spec, [task], named("small", hidden=32))
    observations, batch = batch_of(task, segment, count, bootstrap_shape=bootstrap_shape)
    with tf.GradientTape() as tape:
        features = network.torso.features(observations)
        features = type(features)(*(tf.reshape(x, (count, -1, x.shape[-1])) for x in features))
        loss = task.loss(network.task_outputs(task, features, batch=batch), batch)
    found = tape.gradient(loss, [v.value for v in network.trainable_variables])
    norms = [None if g is None else float(tf.norm(g)) for g in found]
    return dict(zip(network.names, norms, strict=True))


def reached(task, segment, **options):
    """The layers that the loss reaches, and those that it does not."""
    norms = gradients(task, segment, **options)
    layers = {name.split("/")[0] if not name.startswith("torso") else name.rsplit("/", 1)[0] for name in norms}
    with_gradient = {layer for layer in layers if any(norm for n, norm in norms.items() if n.startswith(f"{layer}/"))}
    return with_gradient, layers - with_gradient
