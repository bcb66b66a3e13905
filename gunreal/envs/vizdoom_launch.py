"""Starts ViZDoom's engine so that it ends with its owner: `python -IS vizdoom_launch.py OWNER_PID ENGINE ARGS...`

This script runs in place of the engine and then becomes it. On its own, the engine would wait forever after its owner
is killed, receive a Ctrl-C meant for the owner, and keep the owner's pipes open.
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
    if os.getppid() == int(sys.argv[1]):  # otherwise the owner has already died
        os.execv(sys.argv[2], sys.argv[2:])
