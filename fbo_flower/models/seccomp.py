"""The system calls that a judging child on Linux gives up, as a filter that the kernel applies to it.

The filter is a small program in the kernel's packet-filter language (classic BPF). It looks at the number of
a system call and, for a few of them, at one argument. What it denies fails with `EPERM`; the process goes
on, and Python reports a `PermissionError`. Calls that are newer than this file do not exist for the child.

References: seccomp(2); linux/seccomp.h, linux/bpf_common.h; asm/unistd_64.h and asm-generic/unistd.h.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys

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


def install(*, reading: bool) -> bool:
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
    refuse, missing = _return(_ERRNO | errno.EPERM), _return(_ERRNO | errno.ENOSYS)
    lines = [_load(_ARCH), _jump(_EQUAL, _AUDIT_ARCH[name], 1, 0), _return(_KILL)]
    lines += [_load(_NUMBER), _jump(_AT_LEAST, NEWEST + 1, 0, 1), missing]  # x32's numbers, too
    for number in sorted(denied.values()):
        lines += [_jump(_EQUAL, number, 0, 1), refuse]
    for call in ("clone3", "openat2"):  # flags in memory, where a filter cannot look: libc uses the older
        lines += [_jump(_EQUAL, checked.pop(call), 0, 1), missing]
    for call, number in checked.items():
        body = _check(call, pid, refuse, reading=reading)
        lines += [_jump(_EQUAL, number, 0, len(body)), *body]
    return b"".join([*lines, _return(_ALLOW)])


def _check(call: str, pid: int, refuse: bytes, *, reading: bool) -> list[bytes]:
    """Return the instructions for a call whose argument decides."""
    allow = _return(_ALLOW)
    if call in {"open", "openat"}:
        flags = _load(_argument(1 if call == "open" else 2))
        return [flags, _jump(_ANY_BIT, _WRITES, 0, 1), refuse, allow] if reading else [refuse]
    if call == "clone":  # a thread shares this process and its filter, anything else is a process
        return [_load(_argument(0)), _jump(_ANY_BIT, _CLONE_THREAD, 1, 0), refuse, allow]
    own = [_jump(_EQUAL, pid, 1, 0), refuse, allow]
    if call == "prlimit64":
        return [_load(_argument(0)), _jump(_EQUAL, 0, 2, 0), *own]
    assert call in {"kill", "tgkill"}  # abort() signals its own process
    return [_load(_argument(0)), *own]


def _numbers(text: str, column: int) -> dict[str, int]:
    table = {}
    for entry in text.split():
        call, numbers = entry.split(":")
        number = numbers.split("/")[column]
        if number:
            table[call] = int(number)
    return table


def _argument(index: int) -> int:
    """Return the offset of the low half of an argument; both machines are little-endian."""
    return 16 + 8 * index


def _load(offset: int) -> bytes:
    return _jump(_LOAD, offset)


def _return(value: int) -> bytes:
    return _jump(_RETURN, value)


def _jump(test: int, value: int, then: int = 0, otherwise: int = 0) -> bytes:
    return struct.pack("=HBBI", test, then, otherwise, value)
