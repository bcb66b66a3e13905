"""`gunreal export RUN FILE`: writes the policy of a run as `FILE.keras` or `FILE.onnx`, for other programs."""

from __future__ import annotations

from collections.abc import Sequence

from gunreal.config import folders
from gunreal.config.arguments import Arguments
from gunreal.run import load


def main(argv: Sequence[str]) -> int:
    """Runs the command. Returns the exit code."""
    options = _parser(argv[0]).parse_args(argv[1:])
    print(load(folders.find(options.run, options.logdir), options.checkpoint).export(options.file))
    return 0


def _parser(program: str) -> Arguments:
    parser = Arguments(program, "Writes the policy of a run for other programs.")
    parser.add_run()
    parser.add_argument("file", metavar="FILE", help="file to write, FILE.keras or FILE.onnx")
    return parser
