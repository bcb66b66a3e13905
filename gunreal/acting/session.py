"""One environment that a person and a policy play step by step, and what the network finds in each step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import numpy as np

from gunreal.acting.episodes import MAX_STEPS, check_interface
from gunreal.acting.policy import Memory
from gunreal.acting.predictor import sample_actions
from gunreal.config.plugins import calling
from gunreal.config.schema import Config
from gunreal.envs.make import restore
from gunreal.envs.step import Step, VectorEnv
from gunreal.experience.replay import FIRST, RESET, TERMINATED, TRUNCATED, Past, Replay, inputs, observations, past
from gunreal.experience.sequences import Sequences, steps_and_mask
from gunreal.experience.spec import Spec
from gunreal.learning.learner import Learner
from gunreal.learning.task import AuxiliaryTask, acting_head
from gunreal.tasks import calls
from gunreal.tasks.recorded import recorded_fields


class Session:
    """Plays the episodes of `gunreal evaluate`, as long as nobody chooses another action.

    A step back only looks back. An action that is chosen there replays the episode up to it, so that it goes on
    differently. The network's weights may change at any time.

    Args:
      learner: learner with the policy and the heads of the tasks.
      open_envs: what `gunreal.envs.apart.opener` yields.
      sample: whether to sample actions from the policy instead of taking the most probable one.

    Attributes:
      actions: names of the actions.

    Raises:
      ConfigError, AgentFailure: the environment cannot be opened or fails. All methods raise them.
    """

    def __init__(
        self,
        learner: Learner,
        config: Config,
        spec: Spec,
        tasks: tuple[AuxiliaryTask, ...],
        open_envs: Callable[..., VectorEnv],
        seed: int = 1,
        sample: bool = True,
    ):
        self._learner, self._spec, self._tasks, self._seed, self._sample = learner, spec, tasks, seed, sample
        self._memory, self._episode = Memory(spec), -1
        self._fields = recorded_fields(tasks, spec)
        self._env = open_envs(1, sorted({field.key for field in self._fields.values()}))
        check_interface(config, self._env, spec)
        self.actions = self._env.raw.actions or tuple(f"action {number}" for number in range(spec.num_actions))
        self.anew()

    def anew(self) -> None:
        """Begins the next episode."""
        self._episode += 1
        self._env_seed, self._at = self._memory.begin(self._seed, self._episode), 0
        self._rows: list[dict[str, Any]] = []
        self._curves: dict[str, list[float]] = {name: [] for name in ("value", *(task.name for task in self._tasks))}
        self._append(self._env.step(np.zeros(1, np.int32), np.ones(1, bool), np.array([self._env_seed])))

    def back(self) -> None:
        """Goes back by a step, if there is one."""
        self._at = max(0, self._at - 1)

    def step(self, action: int | None = None) -> None:
        """Goes forward by a step, to the next episode after the end of this one.

        Args:
          action: action to take, from 0 to `num_actions` - 1. None takes that of the policy or, after steps back, the
            one that was taken here.
        """
        row, is_newest = self._rows[self._at], self._at == len(self._rows) - 1
        if not is_newest and action in (None, int(row["action"])):
            self._at += 1
            return
        if row["flags"] & RESET:
            self.anew()
            return
        self._decide()
        if action is None:
            logits = row["logits"]
            action = int(sample_actions(logits[None], self._memory.rng)[0][0] if self._sample else logits.argmax())
        if not is_newest:
            taken = np.array([row["action"] for row in self._rows[: self._at]], np.int32)
            restore(self._env, [self._env_seed], [taken])
            del self._rows[self._at + 1 :]
            for curve in self._curves.values():
                del curve[self._at + 1 :]
            row["flags"] &= np.uint8(FIRST)
        step = self._env.step(np.array([action], np.int32), np.zeros(1, bool), np.array([self._env_seed]))
        terminated, truncated = bool(step.terminated[0]), bool(step.truncated[0])
        ends = (terminated or np.any(step.life_lost)) * TERMINATED | truncated * TRUNCATED
        row |= {"action": np.int32(action), "log_mu": np.log(row["odds"][action] + np.float32(1e-30))}
        row |= {"reward": step.reward[0], "flags": row["flags"] | np.uint8(ends)}
        self._at += 1
        self._append(step, terminated or truncated or self._at >= MAX_STEPS)

    def view(self) -> dict[str, Any]:
        """What there is to see of the present step, with the present weights.

        Returns:
          "episode", "step" and "newest": numbers of the episode, of the step in it, and of its newest step, from 0.
          "frame": `[*spec.frame]`.
          "reward" and "score": reward of the action that led here, and the sum of all so far.
          "ended": "terminated", "truncated", or "" if the episode goes on.
          "action": the action that was taken here, or None for the newest step.
          "policy": probabilities of the actions, `[num_actions]`.
          "curves": by name, the value and the losses of the tasks over all steps of the episode, NaN if unknown.
          "shown": what each task shows (`AuxiliaryTask.show`), by the name of the task.
        """
        self._decide()
        at, newest = self._at, len(self._rows) - 1
        row, rewards = self._rows[at], [float(row["reward"]) for row in self._rows[:at]]
        terminated = at > 0 and self._rows[at - 1]["flags"] & TERMINATED
        return {
            "episode": self._episode,
            "step": at,
            "newest": newest,
            "frame": row["frame"],
            "reward": rewards[-1] if rewards else 0.0,
            "score": sum(rewards),
            "ended": ("terminated" if terminated else "truncated") if row["flags"] & RESET else "",
            "action": None if at == newest else int(row["action"]),
            "policy": row["odds"],
            "curves": self._curves,
            "shown": self._look() if self._tasks else {},
        }

    def close(self) -> None:
        """Closes the environment."""
        self._env.close()

    def _append(self, step: Step, is_last: bool = False) -> None:
        """Adds the row of the observation that a step led to, as agents write it to their rings."""
        index, zero = len(self._rows), np.float32(0)
        row = {"frame": step.frame[0].copy(), "action": np.int32(0), "reward": zero, "log_mu": zero}
        row |= {"age": np.uint8(min(index, 255)), "flags": np.uint8((index == 0) * FIRST | is_last * RESET)}
        if self._spec.state:
            row["state"] = self._rows[-1]["after"] if index else np.zeros(self._spec.state, np.float32)
        if self._spec.vectors:
            row["vector"] = step.vector[0]
        row |= {f"{task}.priority": zero for task in self._spec.priorities}
        for name, field in self._fields.items():
            row[name] = field.converted(step.extra[field.key])[0]
        self._rows.append(row)
        for curve in self._curves.values():
            curve.append(float("nan"))

    def _decide(self) -> None:
        """Predicts the policy and the value of the present step, unless it has been done with these weights."""
        row, version = self._rows[self._at], np.int32(self._learner.version)
        if row.get("version") == version:
            return
        logits, value, *more = self._learner.predict(acting_head(self._spec), *self._inputs(self._spec.acting))
        row |= {name: more.pop(0)[0] for name in self._spec.bonuses}
        odds = np.exp(logits[0] - logits.max())
        row |= {"logits": logits[0], "odds": odds / odds.sum(), "after": more[0][0] if more else None}
        row |= {"value": value[0], "version": version}
        self._curves["value"][self._at] = float(value[0])

    def _read(self, name: str, steps: np.ndarray) -> np.ndarray:
        found = np.stack([self._rows[step][name] for step in steps.ravel()])
        return found.reshape(*steps.shape, *found.shape[1:])

    def _inputs(self, spec: Spec) -> tuple[np.ndarray, Past | None]:
        """The inputs of the network for the present step."""
        steps = np.array([[self._at]])
        return observations(self._read, spec, steps)[0], past(self._read, spec, steps)

    def _look(self) -> dict[str, dict[str, Any]]:
        """What each task shows of the present step. Their losses go to the curves."""
        batch: dict[str, dict[str, Any]] = {}
        for task in self._tasks:
            steps, part = self._part(task)
            batch[task.name] = part | inputs(self._read, self._spec, steps)
        looked, shown = self._learner.look(batch), {}
        for task in self._tasks:
            if batch[task.name]["mask"].any():
                self._curves[task.name][self._at] = float(looked[task.name]["loss"])
            with calling(f"task {task.name!r}: show()"):
                shown[task.name] = task.show(looked[task.name]["outputs"], batch[task.name]["mask"].shape[1])
        return shown

    def _part(self, task: AuxiliaryTask) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Two sequences of a task: one that ends with the present step, and the newest one whose outcome is known.

        Returns:
          Their steps, int `[2, T]`, and the targets with the mask, which only the second one has.
        """
        rows, at = task.length(self._spec.t_max), self._at
        now = np.maximum(np.arange(at - rows, at) + 1, 0)
        part = {name: np.zeros((2, *shape), dtype) for name, (shape, dtype) in self._targets[task.name].items()}
        part["mask"] = np.zeros((2, rows), np.float32)
        if at < (1 if rows == self._spec.t_max else rows):  # other lengths are those of whole sequences
            return np.stack((now, now)), part
        sequences = Sequences(np.array([max(0, at - rows)]), np.array([min(at, rows)]))
        known, part["mask"][1:] = steps_and_mask(self._read, sequences, rows)
        if "weight" in part:
            part["weight"][1] = 1
        replay = Replay(self._read, np, self._spec, at, at, 0, self._rows[0])
        for name, array in calls.targets(task, replay, sequences, self._bootstrap(task)).items():
            part[name][1] = array[0]
        return np.concatenate((now[None], known)), part

    def _bootstrap(self, task: AuxiliaryTask) -> np.ndarray | None:
        return None if task.bootstrap is None else self._learner.predict(task.name, *self._inputs(self._spec))[0]

    @cached_property
    def _targets(self) -> Mapping[str, dict[str, tuple[tuple[int, ...], str]]]:
        """Shape and dtype of each array of the tasks' targets."""
        found = {}
        for task in self._tasks:
            bootstrap = self._bootstrap(task)
            shape = None if bootstrap is None else bootstrap.shape[1:]
            found[task.name] = calls.target_arrays(task, self._spec, shape)
        return found
