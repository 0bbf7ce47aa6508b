"""Work in forks of this process, which start in milliseconds; SIGKILL gives them no chance to tidy up.

A package imports much of scipy and scikit-learn where it first needs it. A test that starts hundreds of forks
would import it in every one of them, which takes longer than what they do. So this process imports what a
fork has imported.
"""

import importlib
import os
import signal
import sys
import traceback
from contextlib import suppress


def forked(work, directory):
    """Do work in a process of its own; return whether it came to its end, False: it was killed."""
    pid = os.fork()
    if pid == 0:
        try:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 1)
            os.dup2(null, 2)
            work()
            (directory / "modules").write_text("\n".join(sys.modules))
        except BaseException:
            (directory / "error").write_text(traceback.format_exc())
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        return False
    if os.waitstatus_to_exitcode(status) != 0:
        raise RuntimeError("the work failed: " + (directory / "error").read_text())
    for name in (directory / "modules").read_text().split():
        with suppress(ImportError):  # names such as _cython_3_0, which no file has
            importlib.import_module(name)
    return True
