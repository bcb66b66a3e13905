"""What a command sets in its own process, and how it starts others.

Python itself looks for modules in the current folder first, where a file `struct.py` or `queue.py` of the user would
take the place of a module that this library or its backends need. Here the current folder follows the standard library,
because `--env mine:make` must be found. Child processes search as this one does.
"""

from __future__ import annotations

import os
import sys  # and nothing that the search must find

_LIBRARY = os.path.dirname(os.__file__)

# Arguments of a child process that reads the search path, pickled, from its standard input and then runs a program.
# Without -P, `import pickle` would already find the user's file.
_SEARCH = "import pickle, sys\nsys.path[:] = pickle.load(sys.stdin.buffer)\n"


def python(program: str) -> list[str]:
    """The command of a child process that runs `program`, once its standard input has what `told` gives."""
    return [sys.executable, "-P", "-c", _SEARCH + program]


def told(*values: object) -> bytes:
    """What a child process reads first: where to look for modules, and for its program each of `values`, pickled."""
    import pickle

    return b"".join(map(pickle.dumps, (sys.path, *values)))


def set_up() -> None:
    """Lets this process find modules in the current folder, after those of the standard library, and print any text."""
    try:
        here = os.getcwd()
    except OSError:  # the folder is gone
        here = ""
    found = [entry for entry in sys.path if entry not in ("", here)]
    library = [place for place, entry in enumerate(found) if entry in (_LIBRARY, f"{_LIBRARY}/lib-dynload")]
    found.insert(max(library, default=-1) + 1, "")
    sys.path[:] = found
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")  # the name of a run may have letters that a terminal lacks
