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
import errno
import os
import platform
import socket
import struct
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

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
    if (name := machine()) is not None:
        # a child of root is not root over the system, and a new user namespace gives none either
        head = ctypes.create_string_buffer(struct.pack("=Ii", _CAPABILITY_VERSION, 0))
        none = ctypes.create_string_buffer(24)
        system_call(_CAPSET[name], ctypes.addressof(head), ctypes.addressof(none))
    if "landlock" in mechanisms and restrict_files(libraries()):
        by.append("landlock")
    if "seccomp" in mechanisms and filter_calls(reading="landlock" in by):
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
    "reading": lambda: any(_opens(path, os.O_RDONLY) for path in (os.sep, sys.executable)),
    "writing": lambda: _opens(os.devnull, os.O_WRONLY),
    "processes": _starts_processes,
}


# -- Landlock: which files a child may still open. It is in the kernel since 5.13, needs no rights, and counts
# the paths that were allowed; every other path is denied, for reading and for writing. It does not hide that
# a path exists. References: landlock(7); linux/landlock.h

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


def landlock_version() -> int:
    """Return the version of the kernel's interface; 0 if it has none, or has switched it off."""
    if machine() is None:
        return 0
    return max(0, system_call(_CREATE, 0, 0, _VERSION))


def restrict_files(paths: Iterable[str]) -> bool:
    """Deny this process every file but those below some paths, for good; return whether the kernel does."""
    known = landlock_version()
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
                descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
                try:
                    allowed = _READ_FILE | (_READ_DIR if os.path.isdir(path) else 0)
                    rule = ctypes.create_string_buffer(struct.pack("=Qi", allowed, descriptor))
                    system_call(_ADD_RULE, rules, _PATH_BENEATH, ctypes.addressof(rule), 0)
                finally:
                    os.close(descriptor)
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


# -- seccomp: the system calls that a child gives up, as a filter in the kernel's packet-filter language
# (classic BPF). It looks at the number of a call and, for a few, at one argument. What it denies fails with
# `EPERM`; the process goes on, and Python reports a `PermissionError`. Calls that are newer than this file do
# not exist for the child. References: seccomp(2); linux/seccomp.h, linux/bpf_common.h; asm/unistd_64.h and
# asm-generic/unistd.h

# name: numbers on x86_64 and on aarch64, which lacks the older ones
_DENIED = """
socket:41/198 socketpair:53/199 connect:42/203 accept:43/202 accept4:288/242 bind:49/200 listen:50/201
sendto:44/206 sendmsg:46/211 sendmmsg:307/269
execve:59/221 execveat:322/281 fork:57/ vfork:58/ ptrace:101/117 process_vm_readv:310/270
process_vm_writev:311/271 kcmp:312/272 pidfd_open:434/434 pidfd_getfd:438/438 pidfd_send_signal:424/424
process_madvise:440/440 tkill:200/130 rt_sigqueueinfo:129/138 rt_tgsigqueueinfo:297/240
creat:85/ truncate:76/45 ftruncate:77/46 fallocate:285/47 rename:82/ renameat:264/38 renameat2:316/276
mkdir:83/ mkdirat:258/34 rmdir:84/ link:86/ linkat:265/37 unlink:87/ unlinkat:263/35 symlink:88/
symlinkat:266/36 mknod:133/ mknodat:259/33 chmod:90/ fchmod:91/52 fchmodat:268/53 chown:92/ fchown:93/55
lchown:94/ fchownat:260/54 utime:132/ utimes:235/ futimesat:261/ utimensat:280/88 setxattr:188/5
lsetxattr:189/6 fsetxattr:190/7 removexattr:197/14 lremovexattr:198/15 fremovexattr:199/16
memfd_create:319/279
mount:165/40 umount2:166/39 pivot_root:155/41 chroot:161/51 unshare:272/97 setns:308/268 open_tree:428/428
move_mount:429/429 fsopen:430/430 fsconfig:431/431 fsmount:432/432 fspick:433/433 mount_setattr:442/442
open_by_handle_at:304/265 name_to_handle_at:303/264 quotactl:179/60 swapon:167/224 swapoff:168/225
acct:163/89
io_uring_setup:425/425 io_uring_enter:426/426 io_uring_register:427/427 io_setup:206/0 io_submit:209/2
bpf:321/280 perf_event_open:298/241 userfaultfd:323/282 fanotify_init:300/262 add_key:248/217
request_key:249/218 keyctl:250/219
init_module:175/105 finit_module:313/273 delete_module:176/106 kexec_load:246/104 kexec_file_load:320/294
reboot:169/142 iopl:172/ ioperm:173/ settimeofday:164/170 clock_settime:227/112 adjtimex:159/171
clock_adjtime:305/266 sethostname:170/161 setdomainname:171/162 syslog:103/116 personality:135/92
shmget:29/194 shmat:30/196 shmctl:31/195 semget:64/190 semop:65/193 semtimedop:220/192 semctl:66/191
msgget:68/186 msgsnd:69/189 msgrcv:70/188 msgctl:71/187 mq_open:240/180 mq_unlink:241/181
mq_timedsend:242/182
"""
_ARGUMENTS = "open:2/ openat:257/56 openat2:437/437 clone:56/220 clone3:435/435 kill:62/129 tgkill:234/131 "
_ARGUMENTS += "prlimit64:302/261"
NEWEST = 450  # the last number that was looked at; from here on nothing exists

_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_NUMBER, _ARCH = 0, 4  # offsets in `struct seccomp_data`
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | 0o20000000  # the last is __O_TMPFILE
_CLONE_THREAD = 0x00010000

_SECCOMP = {"x86_64": 317, "aarch64": 277}
_SET_MODE_FILTER, _ALL_THREADS = 1, 1
_PR_SET_NO_NEW_PRIVS = 38


def machine() -> str | None:
    """Return "x86_64" or "aarch64" for a 64-bit process on Linux there; None elsewhere."""
    name = platform.machine()
    return name if sys.platform == "linux" and name in _AUDIT_ARCH and sys.maxsize > 2**32 else None


def system_call(number: int, *arguments: int) -> int:
    """Call the kernel directly, and return its answer; negative: it refuses."""
    return int(ctypes.CDLL(None, use_errno=True).syscall(*map(ctypes.c_long, (number, *arguments))))


def no_new_privileges() -> bool:
    """Give up privileges of set-uid programs; the kernel requires it before a process may restrict itself."""
    return bool(ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0)


def filter_calls(*, reading: bool) -> bool:
    """Apply the filter to every thread of this process, for good; return whether the kernel took it.

    Parameters
    ----------
    reading : whether files may still be opened for reading (Landlock then says which); if not, no file is
        opened at all, and modules that were not imported before cannot be
    """
    name = machine()
    if name is None or not no_new_privileges():
        return False
    code = program(name, os.getpid(), reading=reading)
    buffer = ctypes.create_string_buffer(code, len(code))
    # struct sock_fprog: the number of instructions, padding, and where they are
    head = ctypes.create_string_buffer(struct.pack("@HP", len(code) // 8, ctypes.addressof(buffer)))
    return system_call(_SECCOMP[name], _SET_MODE_FILTER, _ALL_THREADS, ctypes.addressof(head)) == 0


def program(name: str, pid: int, *, reading: bool) -> bytes:
    """Return the filter's instructions for a machine and a process, eight bytes each."""
    column = list(_AUDIT_ARCH).index(name)
    denied, checked = _numbers(_DENIED, column), _numbers(_ARGUMENTS, column)
    refuse, missing = _jump(_RETURN, _ERRNO | errno.EPERM), _jump(_RETURN, _ERRNO | errno.ENOSYS)
    lines = [_jump(_LOAD, _ARCH), _jump(_EQUAL, _AUDIT_ARCH[name], 1, 0), _jump(_RETURN, _KILL)]
    lines += [_jump(_LOAD, _NUMBER), _jump(_AT_LEAST, NEWEST + 1, 0, 1), missing]  # x32's numbers, too
    for number in sorted(denied.values()):
        lines += [_jump(_EQUAL, number, 0, 1), refuse]
    for call in ("clone3", "openat2"):  # flags in memory, where a filter cannot look: libc uses the older
        lines += [_jump(_EQUAL, checked.pop(call), 0, 1), missing]
    for call, number in checked.items():
        body = _check(call, pid, refuse, reading=reading)
        lines += [_jump(_EQUAL, number, 0, len(body)), *body]
    return b"".join([*lines, _jump(_RETURN, _ALLOW)])


def _check(call: str, pid: int, refuse: bytes, *, reading: bool) -> list[bytes]:
    """Return the instructions for a call whose argument decides."""
    allow = _jump(_RETURN, _ALLOW)
    if call in {"open", "openat"}:
        flags = _jump(_LOAD, _argument(1 if call == "open" else 2))
        return [flags, _jump(_ANY_BIT, _WRITES, 0, 1), refuse, allow] if reading else [refuse]
    if call == "clone":  # a thread shares this process and its filter, anything else is a process
        return [_jump(_LOAD, _argument(0)), _jump(_ANY_BIT, _CLONE_THREAD, 1, 0), refuse, allow]
    own = [_jump(_EQUAL, pid, 1, 0), refuse, allow]
    if call == "prlimit64":
        return [_jump(_LOAD, _argument(0)), _jump(_EQUAL, 0, 2, 0), *own]
    assert call in {"kill", "tgkill"}  # abort() signals its own process
    return [_jump(_LOAD, _argument(0)), *own]


def _numbers(text: str, column: int) -> dict[str, int]:
    entries = (entry.split(":") for entry in text.split())
    table = {call: numbers.split("/")[column] for call, numbers in entries}
    return {call: int(number) for call, number in table.items() if number}


def _argument(index: int) -> int:
    """Return the offset of the low half of an argument; both machines are little-endian."""
    return 16 + 8 * index


def _jump(test: int, value: int, then: int = 0, otherwise: int = 0) -> bytes:
    return struct.pack("=HBBI", test, then, otherwise, value)
