"""Compares two ways to a gradient: `python tools/continuation.py [--backend jax] [training flags]`.

Multiverse's continuation keeps what the backward pass needs from acting, so that training has no forward pass of its
own. Its gradient is taken at the weights that acted, as A3C's is. Measured in turn, for the base network alone:
  two forwards   predictions of --predict observations each, then the gradient of the batch that they make up
  continuation   the same predictions, keeping the activations; one backward pass for each, and the sum of the gradients
Printed are medians over rounds of CPU milliseconds (wall milliseconds with a GPU), and how much the gradients differ.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from common.command_line import Parser
from measuring.forward_passes import compare

from gunreal.config.schema import Config, ConfigError


def parse(argv: Sequence[str]) -> tuple[argparse.Namespace, Config]:
    """The options and the configuration. Raises ConfigError."""
    parser = Parser("continuation.py", __doc__)
    parser.add_argument(
        "--predict", type=int, default=16, metavar="N", help="observations in a prediction (default: 16)"
    )
    parser.add_argument("--train", type=int, default=320, metavar="N", help="observations in a batch (default: 320)")
    parser.add_argument(
        "--rounds", type=int, default=15, metavar="N", help="rounds, of which medians are taken (default: 15)"
    )
    options, config, _ = parser.parse_with_training_flags(argv)
    if min(options.predict, options.rounds) < 1 or options.train < 1 or options.train % options.predict:
        raise ConfigError("--predict, --train and --rounds have to be at least 1, --train a multiple of --predict")
    return options, config


def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns the exit code: 0, or 2 where the input was bad."""
    try:
        options, config = parse(sys.argv[1:] if argv is None else argv)
        found = compare(config, options.predict, options.train, options.rounds)
    except ConfigError as error:
        print(f"continuation.py: {error}", file=sys.stderr)
        return 2
    two, one = found["predict"] + found["train"], found["keep"] + found["continued"]
    print(
        f"{config.backend}, {config.precision}, predictions of {options.predict}, batch {options.train}: "
        f"two forwards {found['predict']:.1f} + {found['train']:.1f} = {two:.1f} ms, "
        f"continuation {found['keep']:.1f} + {found['continued']:.1f} = {one:.1f} ms; ratio {two / one:.2f}; "
        f"gradients differ by {found['difference']:.0e}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
