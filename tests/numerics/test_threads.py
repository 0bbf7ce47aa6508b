import os
import subprocess
import sys
import threading
from contextlib import suppress

import numpy as np
from threadpoolctl import threadpool_info, threadpool_limits
from waiting import LIMIT

from fbo_flower.numerics.threads import single_thread

PROGRAM = """
import sys
import numpy as np
from fbo_flower.numerics.threads import single_thread
from fbo_flower.numerics.linalg import cholesky
with single_thread():
    assert "scipy.linalg" not in sys.modules  # its BLAS is loaded inside the limit
    cholesky(np.eye(3))
    from threadpoolctl import threadpool_info
    assert all(library["num_threads"] == 1 for library in threadpool_info())
"""


def threads(api=""):
    return [library["num_threads"] for library in threadpool_info() if api in library["user_api"]]


def test_libraries_that_are_loaded_inside_the_limit_have_one_thread_whatever_the_environment_says():
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "4", "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", PROGRAM], env=environment, check=True)


def test_the_limit_nests_and_is_lifted_at_the_end_also_after_an_error():
    np.ones((2, 2)) @ np.ones((2, 2))
    with threadpool_limits(2):
        before = threads()
        with suppress(RuntimeError), single_thread():
            with single_thread():
                assert set(threads()) == {1}
            assert set(threads()) == {1}
            raise RuntimeError
        assert threads() == before
        assert max(before) == 2


def test_blas_stays_limited_until_the_last_thread_has_left():
    inside, leave = threading.Event(), threading.Event()

    def other():
        with single_thread():
            inside.set()
            leave.wait(LIMIT)

    with threadpool_limits(2, user_api="blas"):
        worker = threading.Thread(target=other)
        worker.start()
        assert inside.wait(LIMIT)
        with single_thread():
            pass
        blas = threads("blas")
        leave.set()
        worker.join()
        assert (set(blas), set(threads("blas"))) == ({1}, {2})
