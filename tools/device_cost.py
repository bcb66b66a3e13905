"""How much arithmetic does a device run need, and which speed does this allow on a GPU?

  python tools/device_cost.py --agents 4096 --tasks pc,vr,rp --algorithm a3c --t_max 16

It compiles the program of the run for this machine, and adds up the operations that XLA counts in it. Nothing is
trained, and no GPU is needed. The environments are not included.

The last line is an estimate: the agent steps per second of a GPU that does --tflops all the time. A real run is slower,
because it also waits for memory, and because its layers are small.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from common.command_line import Parser, check_positive

from gunreal.config.schema import Config, ConfigError
from gunreal.train import prepare

PARTS = {"act": "acting", "gather": "values after rollouts and sequences", "update": "updates"}


def operations(config: Config) -> dict[str, float]:
    """Returns the floating-point operations per agent step by part of the program. Raises ConfigError."""
    if config.algorithm == "dqn":
        raise ConfigError("dqn cannot be analyzed; use --algorithm a3c or ppo")
    prepared = prepare(config)
    from gunreal.device.system import make_program  # JAX has just been selected

    program = make_program(config, prepared.spec, prepared.tasks)[0]
    steps = config.agents * program.block
    found = {}
    for name, (call, count) in program.lowered().items():
        flops = call.compile().cost_analysis()["flops"]
        # XLA counts the body of a loop once, and the loop of acting takes one step of all agents.
        found[name] = flops / config.agents if name == "act" else count * flops / steps
    return found


def table(found: dict[str, float], tflops: float) -> str:
    """Returns the table and the estimate in Markdown."""
    total = sum(found.values())
    lines = ["| part | million operations per agent step | share |", "|---|---|---|"]
    lines += [f"| {PARTS[name]} | {flops / 1e6:.1f} | {flops / total:.0%} |" for name, flops in found.items()]
    lines += [f"| all | {total / 1e6:.1f} | 100% |", ""]
    lines += [f"Estimate: at most {tflops * 1e6 / total:.2g} million agent steps per second at {tflops:g} TFLOP/s"]
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit code: 0 on success, 2 for bad input."""
    try:
        parser = Parser("device_cost.py", __doc__)
        about = "speed of the GPU in float32 (default: %(default)g, that of an H100 or H200)"
        parser.add_argument("--tflops", type=float, default=67.0, metavar="N", help=about)
        given = sys.argv[1:] if argv is None else argv
        options, config, _ = parser.parse_with_training_flags(["--runner", "device", "--backend", "jax", *given])
        check_positive("tflops", options.tflops)
        found = operations(config)
    except ConfigError as error:
        print(f"device_cost.py: {error}", file=sys.stderr)
        return 2
    print(table(found, options.tflops))
    return 0


if __name__ == "__main__":
    sys.exit(main())
