"""`python -m gunreal.evaluate RUN`: plays episodes with a trained policy and says how well it does.

Scores are sums of raw rewards. The protocol (frame skip, no-ops or sticky actions) is the one that the run was trained
with. Actions are drawn from the policy, as in A3C, GA3C and UNREAL: that is the policy that was trained, and without
sticky actions a game has only some 30 different starts, so that the most probable actions would play the same few
episodes over and over; `--policy argmax` takes them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from absl import flags

from gunreal.acting.predictor import Learner, sample_actions
from gunreal.config.flags import read
from gunreal.config.schema import FIELDS, Config, ConfigError
from gunreal.envs.make import make
from gunreal.experience.replay import Past, blank_past, concatenate_pasts
from gunreal.experience.returns import clip_rewards
from gunreal.experience.spec import Spec
from gunreal.records import runs
from gunreal.run import Run, load

MAX_STEPS = 27_000  # 108 000 frames, half an hour of Atari: ALE's own limit
_ENVIRONMENTS = 16
_STREAM = 1  # fourth word of an episode's seed; training's have three words, which is the same as a fourth of 0
Watch = Callable[[np.ndarray, float, Past | None], None]


class Episode(NamedTuple):
    """One finished episode.

    Attributes:
      number: from 0.
      seed: what the environment was reset with.
      score: sum of the raw rewards.
      length: agent steps.
      cut: whether `max_steps` ended it.
    """

    number: int
    seed: int
    score: float
    length: int
    cut: bool


def play(
    learner: Learner,
    config: Config,
    spec: Spec,
    episodes: int,
    *,
    seed: int = 1,
    sample: bool = True,
    max_steps: int = MAX_STEPS,
    watch: Watch | None = None,
) -> Iterator[Episode]:
    """Plays episodes in several environments at the same time and yields them as they end.

    Which environment plays which episodes is settled beforehand: taking the first ones that end would favour short
    ones. An episode's random numbers follow from `seed` and its number alone, and are none that training draws.

    Args:
      learner: has the policy, `predict("base", observations)`.
      config: says which environment.
      spec: its interface.
      episodes: how many, 1 or more.
      seed: of the episodes.
      sample: draw actions from the policy; False: take the most probable one.
      max_steps: agent steps after which an episode is cut off.
      watch: called with each observation `[*spec.observation]` of episode 0, the score up to it, and what a recurrent
        network takes beside it.
    """
    count = min(episodes, _ENVIRONMENTS)
    with contextlib.ExitStack() as stack:
        players = []
        for first in range(count):
            player = _Player(config, spec, iter(range(first, episodes, count)), seed, watch if first == 0 else None)
            stack.callback(player.close)
            players.append(player)
        for player in players:
            player.begin()
        while players:
            observations = np.stack([player.observation for player in players])
            past = concatenate_pasts([player.past for player in players])
            logits, _, *states = learner.predict("base", observations, past)
            for i, player in enumerate(players):
                if episode := player.step(logits[i], [state[i] for state in states], sample, max_steps):
                    yield episode
                    player.begin()
            players = [player for player in players if player.playing]


class _Player:
    """One environment, and the episodes that it plays one after the other."""

    def __init__(self, config: Config, spec: Spec, numbers: Iterator[int], seed: int, watch: Watch | None):
        self._env, self._spec, self._numbers, self._seed, self._watch = make(config, 1), spec, numbers, seed, watch
        self.playing = True

    def begin(self) -> None:
        """Starts the next episode; where there is none, `playing` gets false."""
        number = next(self._numbers, None)
        if number is None:
            self.playing = False
            return
        self._number, self._length, self._score = number, 0, 0.0
        self._rng = np.random.default_rng([self._seed, number, 0, _STREAM])
        self._episode_seed = int(self._rng.integers(2**31))
        self._advance(0, reset=True)

    def step(self, logits: np.ndarray, state: list[np.ndarray], sample: bool, max_steps: int) -> Episode | None:
        """Acts by `logits` `[A]`, remembers a recurrent network's `state`; returns the episode if that ended it."""
        action = sample_actions(logits[None], self._rng)[0][0] if sample else logits.argmax()
        if self.past:
            self.past.state[0] = state[0]
        done = self._advance(int(action), reset=False)
        self._length += 1
        cut = not done and self._length >= max_steps
        return Episode(self._number, self._episode_seed, self._score, self._length, cut) if done or cut else None

    def _advance(self, action: int, reset: bool) -> bool:
        self._env.send(np.array([action], np.int32), np.array([reset]), np.array([self._episode_seed], np.int64))
        step = self._env.recv()
        (frame,) = step.frame
        if reset:
            self.observation = np.concatenate([frame] * self._spec.stack)
            self.past = blank_past(self._spec, 1)
        else:
            self.observation = np.concatenate((self.observation[len(frame) :], frame))
            if self.past:
                self.past.last_action[:] = action
                self.past.last_reward[:] = clip_rewards(step.reward, self._spec.reward_clip)
        self._score += float(step.reward[0])
        if self._watch and self._number == 0:
            self._watch(self.observation, self._score, self.past)
        return bool(step.terminated[0] or step.truncated[0])

    def close(self) -> None:
        self._env.close()


def summarize(episodes: Sequence[Episode]) -> dict[str, Any]:
    """Statistics of the scores, for JSON. The standard deviation is the population's: 0 for a single episode."""
    episodes = sorted(episodes)
    scores = np.array([episode.score for episode in episodes])
    lengths = [episode.length for episode in episodes]
    return {
        "episodes": len(episodes),
        "mean": float(scores.mean()),
        "median": float(np.median(scores)),
        "std": float(scores.std()),
        "min": float(scores.min()),
        "max": float(scores.max()),
        "mean_length": float(np.mean(lengths)),
        "cut": sum(episode.cut for episode in episodes),
        "scores": scores.tolist(),
        "lengths": lengths,
    }


def _define() -> flags.FlagValues:
    values = flags.FlagValues()
    common: dict[str, Any] = {"flag_values": values}
    protocols = FIELDS["protocol"].metadata["choices"]
    flags.DEFINE_integer("episodes", 30, "episodes to play", lower_bound=1, **common)
    flags.DEFINE_string("checkpoint", "newest", "newest, best, or a checkpoint's path", **common)
    flags.DEFINE_enum("policy", "sample", ["sample", "argmax"], "draw actions, or take the most probable", **common)
    flags.DEFINE_enum("protocol", None, protocols, "of Atari, instead of the run's own", **common)
    flags.DEFINE_integer("seed", 1, "of the episodes", lower_bound=0, **common)
    flags.DEFINE_integer("max_steps", MAX_STEPS, "agent steps after which an episode is cut", lower_bound=1, **common)
    flags.DEFINE_string("video", None, "FILE.mp4 to write the first episode to", **common)
    flags.DEFINE_boolean("json", False, "print one JSON object", **common)
    flags.DEFINE_string("logdir", Config.logdir, "folder of runs, where RUN is a name", **common)
    flags.DEFINE_boolean("help", False, "show this and exit", **common)
    values.set_gnu_getopt(True)
    return values


def _parse(argv: Sequence[str]) -> tuple[str, flags.FlagValues]:
    """The name of the run, and the flags."""
    values = _define()
    rest = read(values, argv, list(values))
    if values.help:
        print(_usage(values))
        raise SystemExit(0)
    if len(rest) != 1:
        raise ConfigError(f"name one run, as in `python -m gunreal.evaluate runs/NAME`; there are {len(rest)} names")
    return rest[0], values


def _usage(values: flags.FlagValues) -> str:
    lines = ["usage: python -m gunreal.evaluate RUN [--flag value] ...", "", "  RUN: a run's folder, or its name", ""]
    for name in sorted(values):
        default = values[name].default
        shown = f" (default {default})" if default not in (None, False) else ""
        lines.append(f"  --{name:<12} {values[name].help}{shown}")
    return "\n".join(lines)


def _open(name: str, values: flags.FlagValues) -> Run:
    """The run, with the configuration that it is to be played with."""
    folder = runs.find(name, values.logdir)
    inside = folder / "checkpoints" / values.checkpoint  # a bare file name, as error messages list them
    run = load(folder, inside if inside.is_file() else values.checkpoint)
    if values.protocol:
        if not run.config.env.startswith("ALE/"):
            raise ConfigError(f"--protocol is of Atari games, and this is {run.config.env}; leave it out")
        run.config = dataclasses.replace(run.config, protocol=values.protocol)
    return run


def evaluate(name: str, values: flags.FlagValues) -> dict[str, Any]:
    """Plays as the flags say; returns what `--json` prints."""
    run = _open(name, values)
    recorder = None
    if values.video:
        from gunreal.records.video import Recorder

        recorder = Recorder(values.video, run)  # complains about a bad path before anything slow is done
    learner, sample = run.learner, values.policy == "sample"
    options = {"seed": values.seed, "sample": sample, "max_steps": values.max_steps}
    played = []
    with recorder or contextlib.nullcontext():
        for episode in play(learner, run.config, run.spec, values.episodes, watch=recorder, **options):
            played.append(episode)
            _show_progress(len(played), values.episodes)
    about = {"run": str(run.path), "env": run.config.env, "checkpoint": str(run.checkpoint), "step": run.step}
    about |= {"policy": values.policy, "protocol": run.config.protocol, "seed": values.seed}
    return about | summarize(played)


def _show_progress(played: int, episodes: int) -> None:
    if sys.stderr.isatty():
        end = "\n" if played == episodes else ""
        print(f"\rplayed {played} of {episodes} episodes", end=end, file=sys.stderr, flush=True)


def _table(result: dict[str, Any]) -> str:
    columns = ("mean", "median", "std", "min", "max", "episodes", "mean_length")
    cells = [f"{result[name]:.2f}" if isinstance(result[name], float) else str(result[name]) for name in columns]
    widths = [max(len(name), len(cell)) + 2 for name, cell in zip(columns, cells, strict=True)]
    protocol = f", {result['protocol']} protocol" if result["env"].startswith("ALE/") else ""
    lines = [
        f"{Path(result['run']).name}: {result['env']}{protocol}, at step {result['step']:,}, policy {result['policy']}",
        "".join(f"{name.replace('_', ' '):>{width}}" for name, width in zip(columns, widths, strict=True)),
        "".join(f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True)),
    ]
    if result["cut"]:
        lines.append(f"{result['cut']} of the episodes reached --max_steps; their scores are up to there")
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns the exit code: 0, 2 where the input was bad, 130 when interrupted."""
    try:
        name, values = _parse(argv or sys.argv)
        result = evaluate(name, values)
    except (ConfigError, FileNotFoundError) as error:
        print(f"gunreal: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    print(json.dumps(result) if values.json else _table(result))
    if values.video and not values.json:
        print(f"video of the first episode: {values.video}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
