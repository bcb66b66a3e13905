"""`gunreal check CLASS`: checks a task, a network or an objective of your own against its contract."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gunreal.config import plugins
from gunreal.config.arguments import Arguments
from gunreal.config.flags import parse_pairs
from gunreal.config.objective import OBJECTIVE
from gunreal.config.schema import ConfigError
from gunreal.config.warning import warn
from gunreal.learning import devices
from gunreal.learning.contract import check_network
from gunreal.learning.registry import NETWORK
from gunreal.objectives.contract import check_objective
from gunreal.tasks.contract import check_task
from gunreal.tasks.registry import TASK

_ABOUT = """\
Checks a task, a network or an objective on random experience. It takes a few seconds, and stops at the first
broken rule.

  gunreal check my_task:InverseDynamics units=32
"""


def main(argv: Sequence[str]) -> int:
    """Returns the exit code: 0 if the class keeps the contract, 1 if it breaks a rule, which is printed.

    Raises:
      ConfigError: the command line is invalid, or there is no such class or option.
    """
    program, *words = argv
    arguments = Arguments(program, _ABOUT)
    arguments.add_argument("name", metavar="CLASS", help="module:Class, or the name of an installed one")
    arguments.add_argument("options", nargs="*", metavar="option=value", help="options of the class")
    arguments.add_argument("--network", help="network to check a task with, instead of a small one")
    given = arguments.parse_args(words)
    kind, check = _kind(given.name)
    if given.network and kind is not TASK:
        raise ConfigError("--network is for tasks; leave it out")
    try:
        options = {name: value for text in given.options for name, value in parse_pairs(text, "units=32").items()}
    except ValueError as error:
        raise ConfigError(str(error)) from error
    checked = plugins.build(kind, plugins.load_class(kind, given.name), options)
    try:
        check(checked, **({"network": given.network} if given.network else {}))
    except (AssertionError, ValueError) as error:
        if isinstance(error, ConfigError):
            raise
        warn(f"{given.name}: {error}")
        return 1
    print(f"{given.name} keeps the contract of {kind.noun}s", flush=True)
    return 0


def _kind(name: str) -> tuple[plugins.Kind, Any]:
    """The kind of plug-in that `name` is, and its check. Tasks and networks may import Keras, which needs a backend."""
    devices.select_any()
    for kind, check in ((NETWORK, check_network), (OBJECTIVE, check_objective)):
        if name in plugins.available(kind):
            return kind, check
        if ":" in name and plugins.is_of(kind, name):
            return kind, check
    return TASK, check_task
