"""Limit BLAS and OpenMP to one thread, so that equal input gives equal bits on machines of one type.

From about `n = 100` on, the last bits of matrix products and factorisations depend on the number of threads.
The limit is a property of the process (BLAS) or of the thread (OpenMP), so this module manages it centrally.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from threadpoolctl import LibController, ThreadpoolController

# Modules that load a BLAS or OpenMP runtime of their own: after one of them is imported, the libraries are
# listed again.
_LOADING_MODULES = (
    "numpy.linalg",
    "scipy.linalg",
    "scipy.optimize",
    "sklearn",
    "sklearn.utils._openmp_helpers",
    "torch",
    "xgboost",
    "lightgbm",
    "faiss",
    "numba",
    "mkl",
)


class _Limit:
    """State of the limit: the libraries, their original thread counts, and the number of active blocks."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.seen: tuple[str, ...] = ()
        self.libraries: list[LibController] = []
        self.num_inside = 0
        self.process_before: dict[str, int] = {}  # file -> threads, restored after the last block
        self.local = threading.local()  # .depth, .thread_before: OpenMP and MKL count per thread

    def apply(self) -> None:
        """Limit every library that is not limited yet, and store its thread count."""
        seen = tuple(name for name in _LOADING_MODULES if name in sys.modules)
        if seen != self.seen:
            self.libraries, self.seen = list(ThreadpoolController().lib_controllers), seen
        for library in self.libraries:
            per_thread = library.user_api == "openmp" or library.internal_api == "mkl"
            per_thread |= getattr(library, "threading_layer", None) == "openmp"
            before = self.local.thread_before if per_thread else self.process_before
            if library.filepath not in before:
                before[library.filepath] = library.num_threads
                _set_num_threads(library, 1)

    def restore(self, before: dict[str, int]) -> None:
        for library in self.libraries:
            if library.filepath in before:
                _set_num_threads(library, before[library.filepath])
                _release(library)
        before.clear()


def _set_num_threads(library: LibController, num_threads: int) -> None:
    _release(library)
    library.set_num_threads(num_threads)


def _release(library: LibController) -> None:
    """Make this thread the one whose limits count: threadpoolctl 3.8 ignores all threads but the first."""
    clear = getattr(library, "clear_controlling_thread", None)
    if clear is not None:
        clear(force=True)


_LIMIT = _Limit()


@contextmanager
def single_thread() -> Iterator[None]:
    """Run the block with one BLAS thread and one OpenMP thread; nested blocks cost nothing.

    Process-wide libraries stay limited until the last thread of the process has left its block.
    """
    local = _LIMIT.local
    depth: int = getattr(local, "depth", 0)
    if depth == 0:
        with _LIMIT.lock:
            local.thread_before = {}
            _LIMIT.apply()
            _LIMIT.num_inside += 1
    local.depth = depth + 1
    try:
        yield
    finally:
        local.depth = depth
        if depth == 0:
            with _LIMIT.lock:
                _LIMIT.restore(local.thread_before)
                _LIMIT.num_inside -= 1
                if _LIMIT.num_inside == 0:
                    _LIMIT.restore(_LIMIT.process_before)


def limit_new_libraries() -> None:
    """Apply the current limit to newly loaded libraries; call this after lazily importing a BLAS."""
    if getattr(_LIMIT.local, "depth", 0) > 0:
        with _LIMIT.lock:
            _LIMIT.apply()
