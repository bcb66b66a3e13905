"""How much arithmetic does a device run need, which speed does this allow on a GPU, and what takes the time?

  python tools/device_cost.py --agents 4096 --tasks pc,vr,rp --objective a3c --t_max 16
  python tools/device_cost.py --agents 1024 --t_max 16 --turns 10

It compiles the program of the run for this machine, and adds up the operations that XLA counts in it. Nothing is
trained, and no GPU is needed. The environments are not included.

The last line is an estimate: the agent steps per second of a GPU that does --tflops all the time. A real run is slower,
because it also waits for memory, and because its layers are small.

With --turns, the device of this machine also executes so many turns, after one that is not counted. The table then
shows the milliseconds of each part, and those of the environments alone, with random actions from the same states.
"""

from __future__ import annotations

import math
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from common.command_line import Parser, check_positive

from gunreal.config.derived import Rates
from gunreal.config.schema import Config, ConfigError
from gunreal.runtime.system import on_this_machine
from gunreal.train import prepare

PARTS = {
    "act": "acting",
    "gather": "values after rollouts and sequences",
    "update with tasks": "updates with tasks",
    "update": "updates",
}
ENVIRONMENTS = "environments alone"


class Parts:
    """The compiled parts of a device run.

    Attributes:
      calls: the compiled calls of a turn, and how often a turn makes each of them, by the names of `PARTS`.
      block: number of steps of a turn.

    Args:
      config: configuration of the run.

    Raises:
      ConfigError: the configuration cannot be analyzed.
    """

    def __init__(self, config: Config):
        if config.objective == "dqn":
            raise ConfigError("dqn cannot be analyzed; use --objective a3c or ppo")
        spec, tasks, _, config = prepare(config)
        from gunreal.device.runner import make_program  # JAX has just been selected

        self._config = on_this_machine(config)
        self._program, self._learner, _ = make_program(self._config, spec, tasks)
        self.block = self._program.block
        self.calls = {name: (call.compile(), count) for name, (call, count) in self._program.lowered().items()}

    def operations(self) -> dict[str, float]:
        """Returns the floating-point operations per agent step by part."""
        agents, found = self._config.agents, dict[str, float]()
        for name, (call, count) in self.calls.items():
            flops = call.cost_analysis()["flops"]
            # XLA counts the body of a loop once, and the loop of acting takes one step of all agents.
            found[name] = flops / agents if name == "act" else count * flops / agents / self.block
        return found

    def milliseconds(self, turns: int) -> dict[str, float]:
        """Returns the milliseconds that a turn spends in each part, and those of its environment steps alone.

        The results are medians of `turns` turns.
        """
        import jax
        import numpy as np
        from measuring.random_play import random_play

        from gunreal.device.environment import open_environment

        env = open_environment(self._config, self._config.agents)
        play = random_play(env.step, int(env.action_space.n), self._config.agents, self.block)
        (_, (act, _)), (_, (gather, _)), *updates = self.calls.items()
        arrays, loop, found = self._learner.arrays, self._program.start(), list[dict[str, float]]()
        state = jax.tree.map(jax.numpy.copy, loop.actors.env), jax.random.key(0)
        state, _ = play(state)  # it is compiled again for its own results, in the turn that is not counted
        rates, place = np.zeros(len(Rates._fields), np.float32), np.zeros(2, np.int32)
        for _ in range(turns + 1):
            times = dict[str, float]()
            loop, _ = _timed(times, "act", act, arrays[0], loop, np.float32(0))
            batch, orders, acted, _ = _timed(times, "gather", gather, arrays[0], loop, np.int32(0))
            for name, (update, count) in updates:
                version = jax.numpy.copy(loop.version)  # an update overwrites it
                inputs = arrays, version, batch, orders, place, acted, rates
                arrays = _timed(times, name, _updated, update, math.ceil(count), *inputs)
                times[name] *= count / math.ceil(count)
            state, _ = _timed(times, ENVIRONMENTS, play, state)
            found.append(times)
        return {name: 1000 * statistics.median(times[name] for times in found[1:]) for name in found[0]}


def _updated(update: Callable[..., Any], count: int, arrays: Any, version: Any, *inputs: Any) -> Any:
    """Returns the arrays of the learner after `count` updates."""
    for _ in range(count):
        arrays, version, *_ = update(arrays, version, *inputs)
    return arrays


def _timed(times: dict[str, float], name: str, call: Callable[..., Any], *arguments: Any) -> Any:
    """Returns the result of a call once it is there, and stores the seconds of the call."""
    import jax

    start = time.perf_counter()
    result = jax.block_until_ready(call(*arguments))
    times[name] = time.perf_counter() - start
    return result


def table(found: dict[str, float], tflops: float) -> str:
    """Returns the operations per agent step and the estimate in Markdown."""
    million = sum(found.values()) / 1e6
    lines = _rows("million operations per agent step", {name: flops / 1e6 for name, flops in found.items()})
    estimate = f"Estimate: at most {tflops / million:.2g} million agent steps per second at {tflops:g} TFLOP/s"
    return "\n".join([*lines, "", estimate])


def table_of_times(found: dict[str, float], steps: int) -> str:
    """Returns the times of the parts of a turn with so many agent steps in Markdown."""
    parts = {name: ms for name, ms in found.items() if name != ENVIRONMENTS}
    total, alone = sum(parts.values()), found[ENVIRONMENTS]
    lines = [*_rows("ms per turn", parts), f"| {ENVIRONMENTS} | {alone:.1f} | {alone / total:.0%} |"]
    return "\n".join(["", *lines, "", f"Measured: {1000 * steps / total:,.0f} agent steps per second"])


def _rows(what: str, found: dict[str, float]) -> list[str]:
    total = sum(found.values())
    rows = [f"| {PARTS[name]} | {value:.1f} | {value / total:.0%} |" for name, value in found.items()]
    return [f"| part | {what} | share |", "|---|---|---|", *rows, f"| all | {total:.1f} | 100% |"]


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit code: 0 on success, 2 for bad input."""
    try:
        parser = Parser("device_cost.py", __doc__)
        about = "speed of the GPU in float32 (default: %(default)g, that of an H100 or H200)"
        parser.add_argument("--tflops", type=float, default=67.0, metavar="N", help=about)
        parser.add_argument("--turns", type=int, default=0, metavar="N", help="turns to measure (default: none)")
        given = sys.argv[1:] if argv is None else argv
        options, config, _ = parser.parse_with_training_flags(["--runner", "device", "--backend", "jax", *given])
        check_positive("tflops", options.tflops)
        if options.turns < 0:
            raise ConfigError(f"--turns is {options.turns}, but must be at least 0")
        parts = Parts(config)
    except ConfigError as error:
        print(f"device_cost.py: {error}", file=sys.stderr)
        return 2
    print(table(parts.operations(), options.tflops))
    if options.turns:
        print(table_of_times(parts.milliseconds(options.turns), config.agents * parts.block))
    return 0


if __name__ == "__main__":
    sys.exit(main())
