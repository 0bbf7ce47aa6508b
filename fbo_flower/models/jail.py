"""What a judging child gives up before the first model arrives: network, files, other processes.

What a system offers differs, so the child takes all it can get and then tries what must fail. Only what was
tried and did fail is reported.

- Linux on x86_64 and aarch64: seccomp denies network, writing and processes. Landlock leaves only Python's
  libraries to read; in a kernel without it seccomp denies opening any file.
- Where seccomp is refused: a network namespace, Landlock and limits, each if the kernel allows it.
- macOS: limits, of bytes written and of processes. Windows: nothing.
"""

from __future__ import annotations

import ctypes
import os
import socket
import struct
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import NamedTuple

from fbo_flower.models import landlock, seccomp

DENIABLE = ("network", "reading", "writing", "processes")
MECHANISMS = ("namespace", "landlock", "seccomp")
_NEW_USER, _NEW_NETWORK, _NEW_IPC = 0x10000000, 0x40000000, 0x08000000
_CAPSET = {"x86_64": 126, "aarch64": 91}
_CAPABILITY_VERSION = 0x20080522


class Confinement(NamedTuple):
    """What a judging child cannot do, and by which means.

    Parameters
    ----------
    denied : of "network", "reading" (files that are not Python's libraries), "writing" and "processes", what
        the child tried in vain
    by : of "namespace", "landlock" and "seccomp", what the kernel agreed to
    """

    denied: tuple[str, ...] = ()
    by: tuple[str, ...] = ()

    @property
    def missing(self) -> tuple[str, ...]:
        """Return what the child can still do."""
        return tuple(name for name in DENIABLE if name not in self.denied)

    def __str__(self) -> str:
        means = f" ({', '.join(self.by)})" if self.by else ""
        denied = f"denied: {', '.join(self.denied) or 'nothing'}{means}"
        return denied + (f"; not denied here: {', '.join(self.missing)}" if self.missing else "")


def confine(mechanisms: tuple[str, ...] = MECHANISMS) -> Confinement:
    """Give up network, files and processes for good, as far as this system can; return what holds.

    To be called when everything has been imported and while there is one thread.
    """
    by = []
    if "namespace" in mechanisms and _own_network():
        by.append("namespace")
    _drop_capabilities()
    if "landlock" in mechanisms and landlock.install(landlock.libraries()):
        by.append("landlock")
    if "seccomp" in mechanisms and seccomp.install(reading="landlock" in by):
        by.append("seccomp")
    else:
        limit("RLIMIT_NPROC", 0)
    return Confinement(tuple(name for name in DENIABLE if not _PROBES[name]()), tuple(by))


def _own_network() -> bool:
    """Move to a network that has no other end; without rights that takes a user namespace as well."""
    if sys.platform != "linux":
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    shared = _NEW_NETWORK | _NEW_IPC
    return bool(libc.unshare(_NEW_USER | shared) == 0 or libc.unshare(shared) == 0)


def _drop_capabilities() -> None:
    """A child of root is not root over the system, and a new user namespace gives none either."""
    machine = seccomp.machine()
    if machine is None:
        return
    head = ctypes.create_string_buffer(struct.pack("=Ii", _CAPABILITY_VERSION, 0))
    none = ctypes.create_string_buffer(24)
    seccomp.system_call(_CAPSET[machine], ctypes.addressof(head), ctypes.addressof(none))


def limit(name: str, value: int, *, for_good: bool = True) -> None:
    """Lower a limit of this process, such as "RLIMIT_NPROC", where the system has it."""
    with suppress(ImportError, ValueError, OSError, AttributeError):
        import resource

        number = getattr(resource, name)
        resource.setrlimit(number, (value, value if for_good else resource.getrlimit(number)[1]))


# -- what can still be done: each tries, changes nothing, and returns whether it succeeded ----------------


def _reaches_network() -> bool:
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as one:
            one.settimeout(1.0)
            one.connect(("127.0.0.1", 9))
    except ConnectionRefusedError:  # somebody was there to refuse
        return True
    except OSError:
        return False
    return True


def _reads() -> bool:
    return any(_opens(path, os.O_RDONLY) for path in (os.sep, sys.executable))


def _writes() -> bool:
    return _opens(os.devnull, os.O_WRONLY)


def _opens(path: str, flags: int) -> bool:
    try:
        os.close(os.open(path, flags))
    except OSError:
        return False
    return True


def _starts_processes() -> bool:
    if not hasattr(os, "fork"):
        return True
    try:
        pid = os.fork()
    except OSError:
        return False
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return True


_PROBES: Mapping[str, Callable[[], bool]] = {
    "network": _reaches_network,
    "reading": _reads,
    "writing": _writes,
    "processes": _starts_processes,
}
