"""Starts ViZDoom's engine such that it ends with its owner: `python -IS vizdoom_launch.py OWNER_PID ENGINE ARGS...`

It is run as a script in the engine's place. By itself the engine waits for orders for ever once its owner was killed,
is hit by the Ctrl-C that is meant for the owner, and holds the owner's pipes open.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1

if __name__ == "__main__":
    os.setsid()
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() == int(sys.argv[1]):  # else the owner died before it could be heard of
        os.execv(sys.argv[2], sys.argv[2:])
