"""`gunreal export RUN FILE`: writes the policy of a run as `FILE.keras` or `FILE.onnx`, for other programs."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from gunreal.config import folders
from gunreal.config.arguments import Arguments
from gunreal.config.schema import Config, ConfigError
from gunreal.config.warning import warn
from gunreal.run import load


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command. Returns the exit code: 0 for success, 2 for invalid input."""
    argv = argv or ["python -m gunreal.export", *sys.argv[1:]]
    try:
        options = _parser(argv[0]).parse_args(argv[1:])
        print(load(folders.find(options.run, options.logdir), options.checkpoint).export(options.file))
    except (ConfigError, FileNotFoundError) as error:
        warn(str(error))
        return 2
    return 0


def _parser(program: str) -> Arguments:
    parser = Arguments(program, "Writes the policy of a run for other programs.")
    parser.add_argument("run", metavar="RUN", help="a run's folder, or its name")
    parser.add_argument("file", metavar="FILE", help="file to write, FILE.keras or FILE.onnx")
    parser.add_argument(
        "--checkpoint", default="newest", help="checkpoint to load: newest, best, a step, or a path (default: newest)"
    )
    parser.add_argument("--logdir", default=Config.logdir, help="folder of runs (default: runs)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
