"""Is training faster if it reuses the forward passes of acting?

  python tools/continuation.py --backend jax

Multiverse calls this continuation: acting keeps its activations, and training needs only the backward pass. As in A3C,
the gradient then belongs to the weights that chose the actions. The program compares two methods on the network
without auxiliary tasks:
  two forwards   predict batches of --predict observations, then compute the gradient of the whole batch
  continuation   predict the same batches and keep their activations, then run a backward pass for each

It prints the median time of each step in milliseconds (CPU time, or wall time with a GPU) and the difference between
the two gradients.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from common.command_line import Parser
from measuring.forward_passes import compare

from gunreal.config.schema import Config, ConfigError


def parse(argv: Sequence[str]) -> tuple[argparse.Namespace, Config]:
    """Returns the options and the training configuration. Raises ConfigError."""
    parser = Parser("continuation.py", __doc__)
    parser.add_argument(
        "--predict", type=int, default=16, metavar="N", help="batch size of predictions, in observations (default: 16)"
    )
    parser.add_argument(
        "--train", type=int, default=320, metavar="N", help="batch size of training, in observations (default: 320)"
    )
    parser.add_argument(
        "--rounds", type=int, default=15, metavar="N", help="number of rounds; the medians are shown (default: 15)"
    )
    options, config, _ = parser.parse_with_training_flags(argv)
    if min(options.predict, options.rounds) < 1 or options.train < 1 or options.train % options.predict:
        raise ConfigError("--predict and --rounds must be at least 1, and --train a multiple of --predict")
    return options, config


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit code: 0 on success, 2 for bad input."""
    try:
        options, config = parse(sys.argv[1:] if argv is None else argv)
        found = compare(config, options.predict, options.train, options.rounds)
    except ConfigError as error:
        print(f"continuation.py: {error}", file=sys.stderr)
        return 2
    two, one = found["predict"] + found["train"], found["keep"] + found["continued"]
    print(
        f"{config.backend}, {config.precision}, predictions of {options.predict}, training batch {options.train}: "
        f"two forwards {found['predict']:.1f} + {found['train']:.1f} = {two:.1f} ms, "
        f"continuation {found['keep']:.1f} + {found['continued']:.1f} = {one:.1f} ms; ratio {two / one:.2f}; "
        f"gradients differ by {found['difference']:.0e}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
