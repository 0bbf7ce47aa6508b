"""An estimator that attacks the process in which it predicts, and tells what succeeded.

An operator would have to trust it. It stands for code that a crafted model made a library run.
"""

import ctypes
import mmap
import os
import socket
import subprocess
import sys

import numpy as np
from sklearn.base import BaseEstimator

TIMEOUT = 2.0


def connect(port):
    with socket.create_connection(("127.0.0.1", int(port)), TIMEOUT):
        pass


def datagram(port):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.sendto(b"a row", ("127.0.0.1", int(port)))


def local_socket(path):
    with socket.socket(socket.AF_UNIX) as one:
        one.connect(path)


def read(path):
    with open(path, "rb") as file:
        file.read(1)


def listing(path):
    os.listdir(path)


def create(path):
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT))


def empty(path):
    os.close(os.open(path, os.O_WRONLY | os.O_TRUNC))


def rename(path):
    os.rename(path, path + ".renamed")
    os.rename(path + ".renamed", path)


def remove(path):
    os.unlink(path)


def chmod(path):
    os.chmod(path, 0o777)


def fork(_):
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)


def program(_):
    subprocess.run([sys.executable, "-c", ""], check=True, timeout=30)


def exec_in_place(_):
    pid = os.vfork() if hasattr(os, "vfork") else os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)


def signal_parent(_):
    os.kill(os.getppid(), 0)


def raw_socket_call(_):
    """What native code does: no Python between it and the kernel."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(ctypes.c_long(41), ctypes.c_long(2), ctypes.c_long(1), ctypes.c_long(0)) < 0:
        raise OSError(ctypes.get_errno(), "socket")


def ring(_):
    """io_uring, which opens and sends without the calls that a filter looks at."""
    libc = ctypes.CDLL(None, use_errno=True)
    buffer = mmap.mmap(-1, 4096)
    address = ctypes.addressof(ctypes.c_char.from_buffer(buffer))
    if libc.syscall(ctypes.c_long(425), ctypes.c_long(4), ctypes.c_long(address)) < 0:
        raise OSError(ctypes.get_errno(), "io_uring_setup")


def attempt(name, argument):
    """Return "done", or the error that an attack ended with."""
    try:
        globals()[name](argument)
    except Exception as error:  # every way to fail counts
        return f"{type(error).__name__} {getattr(error, 'errno', '')}"
    return "done"


class Attacker(BaseEstimator):
    """Predicts one text for every row: how its attack went."""

    def __init__(self, name="", argument=""):
        self.name = name
        self.argument = argument

    def fit(self, x, y=None):
        self.n_features_in_ = x.shape[1]
        return self

    def predict(self, x):
        return np.full(len(x), attempt(self.name, self.argument))
