"""Which files a judging child on Linux may still open: Python's own libraries, to read, and nothing else.

Landlock is in the kernel since 5.13. It restricts the process that asks for it, needs no rights, and counts
the paths that were allowed; every other path is denied, for reading and for writing. It does not hide that a
path exists.

References: landlock(7); linux/landlock.h.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from fbo_flower.models.seccomp import machine, no_new_privileges, system_call

_CREATE, _ADD_RULE, _RESTRICT = 444, 445, 446  # the same on every machine
_VERSION = 1  # flag of _CREATE: only tell the version
_PATH_BENEATH = 1
_READ_FILE, _READ_DIR = 1 << 2, 1 << 3
# version of the interface -> number of rights over files that it knows
_FILE_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
_TCP = 0b11  # bind and connect, from version 4
_SCOPES = 0b11  # abstract sockets and signals, from version 6

# what shared libraries and their loaders read
_SYSTEM = (
    *("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/etc/ld.so.cache"),
    *("/dev/urandom", "/sys/devices/system", "/proc/cpuinfo", "/proc/meminfo"),
)


def version() -> int:
    """Return the version of the kernel's interface; 0 if it has none, or has switched it off."""
    if machine() is None:
        return 0
    return max(0, system_call(_CREATE, 0, 0, _VERSION))


def install(paths: Iterable[str]) -> bool:
    """Deny this process every file but those below some paths, for good; return whether the kernel does."""
    known = version()
    if known < 1 or not no_new_privileges():
        return False
    rights = (1 << _FILE_RIGHTS[min(known, max(_FILE_RIGHTS))]) - 1
    fields = [rights, _TCP if known >= 4 else 0, _SCOPES if known >= 6 else 0]
    fields = fields[: 1 if known < 4 else 2 if known < 6 else 3]
    attributes = ctypes.create_string_buffer(struct.pack(f"={len(fields)}Q", *fields))
    rules = system_call(_CREATE, ctypes.addressof(attributes), 8 * len(fields), 0)
    if rules < 0:
        return False
    try:
        for path in paths:
            with suppress(OSError):  # what does not exist needs no rule
                _allow(rules, path)
        return system_call(_RESTRICT, rules, 0) == 0
    finally:
        os.close(rules)


def libraries() -> Iterator[str]:
    """Paths that a module which is imported late may come from: no folder of a user's own."""
    yield from _SYSTEM
    yield from {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    yield from {os.path.join(prefix, "lib") for prefix in (sys.prefix, sys.base_prefix)}
    yield from (path for path in sys.path if os.path.basename(path) in {"site-packages", "dist-packages"})
    yield str(Path(__file__).parents[1])


def _allow(rules: int, path: str) -> None:
    descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        rights = _READ_FILE | (_READ_DIR if os.path.isdir(path) else 0)
        rule = ctypes.create_string_buffer(struct.pack("=Qi", rights, descriptor))
        system_call(_ADD_RULE, rules, _PATH_BENEATH, ctypes.addressof(rule), 0)
    finally:
        os.close(descriptor)
