"""The speed experiments about device runs: those of CuLE (Dalton et al. 2020), and one for a CPU.

A measurement is a load (environments alone, with predictions, or training) of an engine with a number of environments.
Rounds alternate between the measurements, and each is saved at once. Measurements that exist are not repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from measuring import loads
from measuring.loads import EMULATION, INFERENCE, TRAINING

from experiments import saved
from experiments.table import TASKS, Experiment
from gunreal.config.resolve import resolved
from gunreal.config.schema import Config, ConfigError

ENGINES = {  # of the paper, with the fields of a configuration
    "gym": ("ale-py on the CPU", {"runner": "parallel", "emulator": "ale"}),
    "cpu": ("gunreal's emulator on the CPU", {"runner": "parallel", "emulator": "own"}),
    "device": ("device run", {"runner": "device", "backend": "jax"}),
}
COURSE = "course"
_PATIENCE = 300.0  # seconds for a training with its compilation
_MOST_PROCESSES = 16
_MOST_ALE = 512  # ale-py takes megabytes for each environment


class Measurement(NamedTuple):
    """What is measured.

    Attributes:
      load: a load of `measuring.loads`, or "course" for frames per second since a common start.
      engine: a key of `ENGINES`.
      env: environment.
      agents: number of environments.
      algorithm: algorithm of a training.
      tasks: auxiliary tasks of a training.
      batches: groups of agents that update in turn.
    """

    load: str
    engine: str
    env: str
    agents: int
    algorithm: str = "a3c"
    tasks: tuple[str, ...] = ()
    batches: int = 0

    def config(self) -> Config:
        """The configuration that is measured. CPU engines train with batches of the same size."""
        chosen: dict[str, Any] = dict(ENGINES[self.engine][1])
        if not self.env.startswith("ALE/"):
            chosen.pop("emulator", None)
        chosen |= {"env": self.env, "agents": self.agents, "objective": self.algorithm, "tasks": self.tasks}
        groups = {"device_batches": self.batches} if self.batches else {}
        on_device = resolved(Config(**chosen | {"runner": "device"} | groups))
        if self.engine == "device":
            return Config(**chosen, **groups)
        batch = self.agents // on_device.device_batches * on_device.t_max
        each = max(on_device.agents_per_process, self.agents // _MOST_PROCESSES)
        return Config(**chosen, min_batch=batch, agents_per_process=each)


@dataclass(frozen=True, kw_only=True)
class LoadExperiment(Experiment):
    """An experiment with loads. `envs` has the games, and `settings` is empty.

    Attributes:
      measurements: what is measured, in this order.
      steps: agent steps of a course.
    """

    measurements: tuple[Measurement, ...]
    steps: int = 1600


def _atari(*games: str) -> tuple[str, ...]:
    return tuple(f"ALE/{game}-v5" for game in games)


_FOUR = _atari("Breakout", "Pong", "MsPacman", "SpaceInvaders")
_GAMES = _atari("Pong", "Riverraid", "Boxing")  # and the paper's fastest and slowest game
_SIZES = (32, 128, 512, 2048, 4096)


def _grid(of: Sequence[str], games: Sequence[str], sizes: Sequence[int], *more: Any) -> Iterator[Measurement]:
    """Yields each load of each engine, the device first."""
    for engine in ("device", "cpu", "gym"):
        for load in of:
            for env in games:
                for agents in sizes:
                    if not (engine == "gym" and agents > _MOST_ALE):
                        yield Measurement(load, engine, env, agents, *more)


_FIG2 = tuple(_grid((EMULATION, INFERENCE), _GAMES, _SIZES))
_TABLE6 = tuple(
    Measurement(TRAINING, engine, "ALE/Pong-v5", agents, algorithm)
    for algorithm in ("a3c", "ppo", "dqn")
    for engine in ("device", "cpu", "gym")
    for agents in (256, 1024)
    if not (engine != "device" and algorithm == "dqn") and not (engine == "gym" and agents > _MOST_ALE)
)
_OWN = (
    Measurement(EMULATION, "device", "ALE/Pong-v5", 4096),
    Measurement(INFERENCE, "device", "ALE/Pong-v5", 4096),
    Measurement(TRAINING, "device", "ALE/Pong-v5", 1024, "ppo"),
    Measurement(TRAINING, "device", "ALE/Pong-v5", 1200, "a3c", (), 20),
)
_NONE: Mapping[str, Any] = {"settings": {}}
_ALL = (
    LoadExperiment(
        name="cule-table1",
        title="CuLE table 1: frames per second of training systems",
        shows="In the paper, CuLE plays 40,000 to 196,000 frames per second on one GPU with random actions and 4,096 "
        "environments, 40,000 to 170,000 with predictions, 20,000 with PPO and 1,024 environments, and 50,000 with "
        "A2C, V-trace and 1,200 environments. The other rows are numbers of other papers.",
        envs=("ALE/Pong-v5",),
        measurements=_OWN,
        **_NONE,
    ),
    LoadExperiment(
        name="cule-fig2",
        title="CuLE figure 2: frames per second, and for each environment",
        shows="In the paper, the best game has 190,000 frames per second at 4,096 environments on a GPU (Riverraid) "
        "and the worst one 34,000 (Boxing); on the CPU 29,000 and 12,000. The paper has all 57 games.",
        envs=_GAMES,
        measurements=_FIG2,
        **_NONE,
    ),
    LoadExperiment(
        name="cule-fig3",
        title="CuLE figure 3: frames per second since a common start, on the device",
        shows="In the paper, the rate falls until the environments have diverged. It states no numbers.",
        envs=_FOUR,
        measurements=tuple(Measurement(COURSE, "device", env, 512) for env in _FOUR),
        **_NONE,
    ),
    LoadExperiment(
        name="cule-fig4",
        title="CuLE figure 4: frames per second since a common start, on the CPU",
        shows="In the paper, the rate does not fall, because threads of a CPU do not share instructions.",
        envs=_FOUR,
        measurements=tuple(Measurement(COURSE, "cpu", env, 512) for env in _FOUR),
        **_NONE,
    ),
    LoadExperiment(
        name="cule-fig5",
        title="CuLE figure 5: frames per second by game, engine and load",
        shows="In the paper, a single GPU slows down from emulation to inference to training. It states no numbers.",
        envs=_FOUR,
        measurements=tuple(_grid((EMULATION, INFERENCE, TRAINING), _FOUR, (32, 512, 2048))),
        **_NONE,
    ),
    LoadExperiment(
        name="cule-table6",
        title="CuLE table 6: frames per second of training on Pong by engine and algorithm",
        shows="In the paper (system I, 256 and 1,024 environments): A2C 12,800 and 15,200 (OpenAI Gym), 10,400 and "
        "14,200 (CuLE, CPU), 19,600 and 51,000 (CuLE, GPU); PPO 12,000 and 10,600, 10,000 and 10,200, 14,000 and "
        "36,000; DQN 6,400 and 8,400, 7,200 and 8,600, 14,400 and 25,600. gunreal has DQN in device runs only.",
        envs=("ALE/Pong-v5",),
        measurements=_TABLE6,
        **_NONE,
    ),
    LoadExperiment(
        name="device-speed",
        title="Device runs and the parallel runner on one machine",
        shows="Both runners train on batches of the same size.",
        envs=("gunreal/Catch-v0", "ALE/Pong-v5"),
        measurements=tuple(
            Measurement(TRAINING, engine, env, 24, "ppo", tasks)
            for env in ("gunreal/Catch-v0", "ALE/Pong-v5")
            for tasks in ((), TASKS)
            for engine in ("cpu", "device")
        ),
        **_NONE,
    ),
)
EXPERIMENTS = {experiment.name: experiment for experiment in _ALL}


def chosen(experiment: LoadExperiment, games: str = "", tiny: bool = False) -> LoadExperiment:
    """The experiment on some of its games, or with a few environments of one game, to see that it works.

    Raises:
      ConfigError: it does not have such a game.
    """
    known = {env.removeprefix("ALE/").removesuffix("-v5"): env for env in experiment.envs}
    names = games.split(",") if games else list(known)
    for name in names:
        if name not in known:
            raise ConfigError(f"{experiment.name} has no game {name!r}; available: {', '.join(known)}")
    envs = tuple(known[name] for name in names)[: 1 if tiny else None]
    kept = [of for of in experiment.measurements if of.env in envs]
    if tiny:
        kept = list(dict.fromkeys(of._replace(agents=8, batches=0) for of in kept))
    return replace(experiment, envs=envs, measurements=tuple(kept), steps=16 if tiny else experiment.steps)


def read(path: Path) -> list[dict[str, Any]]:
    """The measurements so far: "measurement" with its fields, "rows" with the results, "machine" and "seconds".

    Raises:
      ConfigError: the file is damaged.
    """
    return saved.load(path, list) if path.exists() else []


def measure(experiment: LoadExperiment, path: Path, seconds: float, rounds: int, say: Callable[[str], None]) -> int:
    """Makes the missing measurements, and returns the number of those that failed.

    Raises:
      ConfigError: the file has measurements of another machine or of another length, or it is damaged.
      OSError: the file cannot be written.
    """
    about = {"machine": saved.here(), "seconds": seconds}
    known = {Measurement(**fields(entry)): entry for entry in read(path)}
    saved.check(path, known.values(), machine=about["machine"])
    saved.check(path, [known[of] for of in experiment.measurements if of in known], seconds=seconds)
    failed: set[Measurement] = set()
    for number in range(rounds):
        for place, of in enumerate(experiment.measurements, 1):
            entry = known.setdefault(of, {"measurement": of._asdict(), "rows": [], **about})
            if of in failed or len(entry["rows"]) > number:
                continue
            where = f"round {number + 1} of {rounds}, {place} of {len(experiment.measurements)}: {_words(of)}"
            try:
                entry["rows"].append(_row(of, experiment.steps, seconds))
            except Exception as error:  # the other measurements are still worth having
                failed.add(of)
                say(f"{where}: {type(error).__name__}: {error}".splitlines()[0])
                continue
            saved.save(path, [entry for entry in known.values() if entry["rows"]])
            say(f"{where}: {entry['rows'][-1]['steps']:,.0f} agent steps/s")
    return len(failed)


def fields(entry: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a saved `Measurement`."""
    found = dict(entry["measurement"])
    return found | {"tasks": tuple(found["tasks"])}


def _words(of: Measurement) -> str:
    words = (of.load, of.engine, of.env, f"{of.agents:,} environments", of.algorithm if of.load == TRAINING else "")
    return ", ".join([*filter(None, words), *of.tasks])


def _row(of: Measurement, steps: int, seconds: float) -> dict[str, Any]:
    if of.load == COURSE:
        course = loads.course(of.config(), steps)
        return {"steps": course[-1]["rate"], "course": course}
    return loads.rate(of.load, of.config(), seconds, _PATIENCE)
