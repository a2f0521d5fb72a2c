"""Runs a program that ends with its parent, even by kill -9: `follow.py PARENT_PID PROGRAM ...` (Linux)."""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1

ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
# The parent may have ended before the line above.
if os.getppid() != int(sys.argv[1]):
    sys.exit(143)
os.execv(sys.argv[2], sys.argv[2:])
