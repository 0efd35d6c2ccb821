"""
Become another program that the kernel kills when our parent dies, however it dies: SIGKILL included.

`python die_with_parent.py PARENT_PID PROGRAM [ARGUMENT ...]`. The request (PR_SET_PDEATHSIG) survives exec, and is made
here rather than in a `preexec_fn`, which newer Pythons refuse in a process with threads. On other systems than Linux
the program simply runs.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1

if sys.platform == "linux":
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
if os.getppid() != int(sys.argv[1]):
    sys.exit("the parent died before its child could ask to die with it")
os.execv(sys.argv[2], sys.argv[2:])
