"""Start a program that dies with its parent, however the parent dies: ``python -m headgate.fabric.guard PROGRAM ...``.

On Linux the kernel delivers the signal, and the program replaces this one. Elsewhere this process stays and watches.
The environment may say which process the parent is (`HEADGATE_PARENT`), for one that dies before the guard stands.
"""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import subprocess
import sys
import time

_PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> int:
    """Run the program given by `arguments` under the guard."""
    parent = int(os.environ.pop("HEADGATE_PARENT", os.getppid()))
    if platform.system() == "Linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # the parent died before the guard stood
            return 1
        os.execv(arguments[0], arguments)  # noqa: S606 - the arguments are a list that our own code made
    child = subprocess.Popen(arguments)
    try:
        while child.poll() is None:
            if os.getppid() != parent:
                child.kill()
            time.sleep(0.2)
    except KeyboardInterrupt:
        child.terminate()
    return child.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
