"""Numbers beside an image: what only they tell is learned, and a policy acts on it."""

from __future__ import annotations

import os

import numpy as np

import gunreal

BACKEND = os.environ.get("KERAS_BACKEND", "tensorflow")
IMAGE = np.zeros((20, 20, 1), np.uint8)


def trained(folder, **options):
    """A run on a black image and the side that pays. Chance has a mean of 0."""
    settings = {"steps": 2000, "agents": 4, "min_batch": 40, "hidden": 16, "learning_rate": 1e-2, "backend": BACKEND}
    settings |= {"frame_size": 20, "frame_stack": 1, "network": "mlp", "logdir": str(folder)}
    env_args = {"wait": 0, "shown": 0, "told": True}
    return gunreal.train(gunreal.Config(env="recall:Recall", env_args=env_args, **settings | options), show=False)


def test_what_only_a_number_tells_is_learned(tmp_path):
    run = trained(tmp_path, name="told", runner="serial", tasks=("vr", "rp"))
    assert run.config.vector_keys == "side,time" and run.spec.vectors == 4
    assert run.evaluate(20, sample=False).tolist() == [1] * 20
    policy = run.policy(2, sample=False)
    policy.reset()
    seen = {"image": np.stack([IMAGE, IMAGE]), "side": np.array([1, 0]), "time": np.zeros(2, int)}
    assert policy.act(seen).tolist() == [1, 0]
    run = trained(tmp_path, name="untold", runner="serial", vector_keys="", steps=40)
    assert run.config.vector_keys == "" and run.spec.vectors == 0
    assert len(set(run.evaluate(20, sample=False))) == 2  # what it does is right by chance


def test_a_recurrent_network_learns_it_in_processes(tmp_path):
    """A curve in processes depends on the load of the machine."""
    common = {"network": "lstm", "tasks": ("vr", "rp"), "steps": 3000}
    runs = (trained(tmp_path, name=f"lstm{seed}", seed=seed, **common) for seed in (1, 2, 3))
    assert any(run.evaluate(20, sample=False).mean() > 0.9 for run in runs)
