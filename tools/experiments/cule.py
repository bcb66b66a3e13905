"""The learning experiments about device runs: those of CuLE (Dalton et al. 2020), and one for a CPU.

The paper's OpenAI Gym is the parallel runner with ale-py here, and CuLE on a GPU is a device run on JAX's device.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments.table import ALL, TASKS, GamesExperiment, LearningExperiment, Setting

_PARALLEL, _DEVICE = {"runner": "parallel"}, {"runner": "device", "backend": "jax"}
_A3C = {"algorithm": "a3c", "correction": "vtrace"}
_VTRACE = {  # constants of CuLE's example of V-trace
    **_A3C,
    "optimizer": "rmsprop",
    "learning_rate": 6.5e-4,
    "learning_rate_end": 6.5e-4,
    "epsilon": 1e-5,
    "entropy": 0.01,
    "value_weight": 0.5,
    "max_grad_norm": 0.5,
}
_PPO = {  # CuLE, table 4
    "algorithm": "ppo",
    "t_max": 4,
    "optimizer": "adam",
    "learning_rate": 5e-4,
    "learning_rate_end": 5e-4,
    "ppo_epochs": 4,
    "ppo_minibatches": 4,
}


def _gym(agents: int, batches: int, t_max: int) -> Setting:
    """Returns CPU environments. An update has as many steps as with groups of agents that update in turn."""
    label = f"parallel runner, {agents:,} environments, {batches} batches, {t_max} steps"
    sizes = {"agents": agents, "agents_per_process": agents // 12, "min_batch": agents // batches * t_max}
    return Setting(label, {**_PARALLEL, **sizes, "t_max": t_max, "emulator": "ale"})


def _cule(agents: int, batches: int, t_max: int) -> Setting:
    label = f"device run, {agents:,} environments, {batches} batches, {t_max} steps"
    return Setting(label, {**_DEVICE, "agents": agents, "device_batches": batches, "t_max": t_max})


def _on(runner: Mapping[str, Any], label: str, of: Mapping[str, Any]) -> Setting:
    return Setting(f"{label}, {runner['runner']} runner", {**runner, **of})


_AS_ON_DEVICES = {"min_batch": 480, "learning_rate": 5e-4}
_ALL = (
    LearningExperiment(
        name="device-learning",
        title="Agent steps to a score of 0.9: device runs and the parallel runner",
        shows="Both runners train on batches of the same size with the same settings: 120 agent steps with A3C and "
        "V-trace, and 480 with PPO. DQN exists in device runs only.",
        envs=("gunreal/Catch-v0",),
        settings={
            "a3c": _on(_DEVICE, "A3C and V-trace", {**_A3C, "device_batches": 4, "learning_rate": 2e-3}),
            "a3c-parallel": _on(_PARALLEL, "A3C and V-trace", {**_A3C, "min_batch": 120, "learning_rate": 2e-3}),
            "ppo": _on(_DEVICE, "PPO", {"algorithm": "ppo"}),
            "ppo-parallel": _on(_PARALLEL, "PPO", {"algorithm": "ppo", **_AS_ON_DEVICES}),
            "dqn": _on(_DEVICE, "DQN", {"algorithm": "dqn"}),
        },
        common={"network": "mlp", "hidden": 64, "frame_stack": 1, "agents": 24, "metrics_seconds": 1.0},
        steps=80_000,
        reference="a3c-parallel",
        goal=0.9,
        panels=(("step", "score_mean"),),
    ),
    LearningExperiment(
        name="device-maze",
        title="Agent steps to a score of 0.8 in the rare-goal maze: device runs and the parallel runner",
        shows="Both runners train with PPO on batches of 480 agent steps.",
        envs=("gunreal/RareGoalMaze-v0",),
        settings={
            "base": _on(_DEVICE, "no task", {"tasks": ()}),
            "base-parallel": _on(_PARALLEL, "no task", {"tasks": (), **_AS_ON_DEVICES}),
            ALL: _on(_DEVICE, "pc+vr+rp", {"tasks": TASKS}),
            f"{ALL}-parallel": _on(_PARALLEL, "pc+vr+rp", {"tasks": TASKS, **_AS_ON_DEVICES}),
        },
        common={"agents": 24, "metrics_seconds": 1.0},
        steps=150_000,
        reference="base-parallel",
        goal=0.8,
        panels=(("step", "score_mean"),),
    ),
    GamesExperiment(
        name="cule-table3",
        title="CuLE table 3 and figure 8: one batch or several",
        shows="In the paper (section 4, a Titan V), these settings need 11.2, 14.5, 5.0, 6.9, -, 4.7 and 2.9 minutes "
        "to a score of 18 on Pong, and 33, 42, 35, 41, -, 19 and 20 minutes to 1,500 on Ms. Pac-Man. One batch of "
        "1,200 environments does not get there. Its last column, 4 GPUs, needs 1.9 and 4.6 minutes.",
        envs=("ALE/Pong-v5",),
        settings={
            "gym-1": _gym(120, 1, 5),
            "gym-5": _gym(120, 5, 5),
            "gym-20": _gym(120, 20, 20),
            "gym1200-20": _gym(1200, 20, 20),
            "cule-1": _cule(1200, 1, 5),
            "cule-5": _cule(1200, 5, 5),
            "cule-20": _cule(1200, 20, 20),
        },
        common={**_VTRACE, "metrics_seconds": 2.0},
        steps=15_000_000,
        reference="cule-20",
        panels=(("seconds", "score_mean"),),
        games={"Pong": {}, "MsPacman": {}},
        goals={"Pong": 18.0, "MsPacman": 1500.0},
    ),
    GamesExperiment(
        name="cule-fig6",
        title="CuLE figure 6: PPO with the constants of table 4",
        shows="In the paper (section 4, a Tesla V100, 50M agent steps), more environments lead to slightly faster "
        "learning on Pong, Ms. Pac-Man and Space Invaders, and to slower learning on Breakout. The paper states no "
        "scores.",
        envs=("ALE/Pong-v5",),
        settings={
            "gym-256": Setting(
                "parallel runner, 256 environments",
                {**_PARALLEL, "agents": 256, "agents_per_process": 16, "min_batch": 1024, "emulator": "ale"},
            ),
            **{
                f"cule-{agents}": Setting(f"device run, {agents:,} environments", {**_DEVICE, "agents": agents})
                for agents in (256, 512, 1024)
            },
        },
        common={**_PPO, "metrics_seconds": 5.0},
        steps=50_000_000,
        reference="gym-256",
        panels=(("seconds", "score_mean"),),
        games=dict.fromkeys(("Breakout", "MsPacman", "Pong", "SpaceInvaders"), {}),
    ),
)
EXPERIMENTS = {experiment.name: experiment for experiment in _ALL}
