"""The child process: what it refuses, how it ends, and that its parent goes on."""

import os
import struct
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from crafted_models import X, Y, forest, linear, svm, tree, wild_child, with_tree_array
from sklearn.ensemble import RandomForestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures
from sklearn.svm import SVC
from waiting import wait_until

from fbo_flower.errors import ConfigError, ModelError
from fbo_flower.models import Limits, pack, predict, sandbox, worker

pytestmark = pytest.mark.xdist_group("sandbox")  # one process starts the shared child
BOOT = sandbox.BOOT.rsplit(";", 1)[0]
UNCHECKED = (
    f"{BOOT}; from fbo_flower.models import schema; schema.check_tree = lambda **all: None; worker.main()"
)


def answering(header, content=b"", sizes=None):
    """Code of a child that is ready and then answers everything with this."""
    first, second = sizes or (len(header), len(content))
    ready = struct.pack("<QQ", 15, 0) + b'{"ready": true}'
    answer = struct.pack("<QQ", first, second) + header.encode() + content
    return (
        f"import struct, sys; i, o = sys.stdin.buffer, sys.stdout.buffer; o.write({ready!r}); o.flush()\n"
        f"while sizes := i.read(24):\n    i.read(sum(struct.unpack('<QQQ', sizes)))\n"
        f"    o.write({answer!r}); o.flush()"
    )


ZEROS = answering("{}", worker.dump_array(np.zeros(120)))


@pytest.fixture(scope="module")
def shared():
    """The pool of most tests here: its child takes a second or two to start."""
    made = sandbox.OneChild(sandbox.BOOT)
    yield made
    made.close()


@pytest.fixture(autouse=True)
def pool(monkeypatch, shared):
    """Return a function that makes a pool whose child runs other code, instead of the shared one."""
    monkeypatch.setattr(sandbox, "_CHILD", shared)
    made = []

    def start(boot):
        made.append(sandbox.OneChild(boot))
        monkeypatch.setattr(sandbox, "_CHILD", made[-1])
        return made[-1]

    yield start
    for one in made:
        one.close()


def test_the_child_answers_as_the_model_does():
    holes = np.where(np.arange(5) == 2, np.nan, X)
    texts = RandomForestClassifier(5, random_state=0, verbose=3)  # what it prints disturbs no answer
    texts.fit(np.vstack([X, holes]), np.tile(np.array(["ill", "well"], dtype=object)[Y], 2))
    for model in (forest(), linear(), svm(), texts):
        np.testing.assert_array_equal(predict(pack(model), X), model.predict(X))
    for rows in (holes, X.round().astype(np.int64), np.asfortranarray(X)[::2]):
        assert predict(pack(texts), rows).tolist() == texts.predict(rows).tolist()
    assert predict(pack(texts), X, method="classes_").tolist() == ["ill", "well"]
    np.testing.assert_array_equal(predict(pack(texts), X, method="predict_proba"), texts.predict_proba(X))
    other = SVC().fit(X, np.digitize(X[:, 0], [-0.5, 0.5]))
    found = predict(pack(other), X, method="decision_function")
    # another process may choose another kernel of BLAS
    np.testing.assert_allclose(found, other.decision_function(X), rtol=1e-12, atol=1e-14)


def test_a_wild_tree_that_no_check_stops_ends_the_child_only(pool):
    mine = pool(UNCHECKED)
    with pytest.raises(ModelError, match=r"worker was ended by SIG(SEGV|BUS|ABRT) while predicting"):
        predict(with_tree_array(tree(), "nodes", wild_child), X)
    assert mine.child is None or not mine.child.alive


def test_the_processor_time_of_a_request_is_limited_in_the_child(pool):
    boot = BOOT + "; worker._limit_request(worker.Limits(seconds=0.1), None)\nwhile True: pass"
    with pytest.raises(ModelError, match="ended by SIGXCPU while starting"):
        pool(boot).ask({}, b"", X)


def test_a_child_that_is_killed_or_too_slow_is_replaced_and_an_answer_forgives_the_loss(pool, monkeypatch):
    monkeypatch.setattr(sandbox, "MAX_LOSSES", 1)
    mine = pool(ZEROS)
    for _ in range(2):
        assert predict(pack(tree()), X).shape == (120,)
        mine.child.kill()
    assert predict(pack(tree()), X).shape == (120,)
    pool(ZEROS.replace("    o.write", "    import time; time.sleep(60)\n    o.write"))
    with pytest.raises(ModelError, match=r"took longer than 0.2 s while predicting"):
        predict(pack(tree()), X, Limits(seconds=0.2))


def test_children_are_not_started_for_ever(pool, monkeypatch):
    monkeypatch.setattr(sandbox, "MAX_LOSSES", 2)
    mine = pool("import sys; sys.exit('no scikit-learn here')")
    for _ in range(2):
        with pytest.raises(ModelError, match=r"ended with status 1 .no scikit-learn here. while starting"):
            predict(pack(tree()), X)
    with pytest.raises(ModelError, match="lost 2 times in a row"):
        predict(pack(tree()), X)
    assert mine.child is None


@pytest.mark.parametrize(
    ("boot", "match"),
    [
        (answering("{}", b"pickled"), "predictions: expected an array"),
        (answering("{}", worker.dump_array(np.zeros(7))), "predictions of 120 rows"),
        (answering("{}", worker.dump_array(np.zeros(120, dtype="S3"))), "predictions"),
        (answering("{}", worker.dump_array(np.full(120, np.nan))), "finite"),
        (answering("{}", sizes=(2, 2**40)), "short answer"),
        (answering("nonsense"), "JSON"),
        (answering("[1]"), "JSON object"),
        (answering('{"refused": "two\\nlines\\u001b[31m"}'), r"^twolines\[31m$"),
    ],
)
def test_an_answer_that_is_none_is_an_error(pool, boot, match):
    pool(boot)
    with pytest.raises(ModelError, match=match):
        predict(pack(tree()), X)


def probe(code):
    """What the child prints to its answer when it starts with `code` run in it."""
    text = f"{BOOT}\nimport json, os, struct, sys\n{code}\n"
    text += "t = json.dumps({'refused': str(said)}).encode(); o = sys.stdout.buffer\n"
    text += "o.write(struct.pack('<QQ', 15, 0) + b'{\"ready\": true}' + struct.pack('<QQ', len(t), 0) + t)\n"
    text += "o.flush(); sys.stdin.buffer.read()"
    return text


def test_the_child_inherits_no_secrets_has_one_thread_writes_no_file_and_dumps_no_memory(pool, monkeypatch):
    monkeypatch.setenv("A_SECRET", "x")
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    code = (
        "import resource as r; worker._limit_once(); said = sorted(os.environ), [r.getrlimit(n)[0] for n in "
    )
    pool(probe(code + "(r.RLIMIT_FSIZE, r.RLIMIT_CORE, r.RLIMIT_NOFILE)]"))
    with pytest.raises(ModelError) as caught:
        predict(pack(tree()), X)
    assert "A_SECRET" not in str(caught.value)
    assert "HOME" not in str(caught.value)
    assert "OPENBLAS_NUM_THREADS" in str(caught.value)
    if sys.platform == "linux":  # limits of other systems differ
        assert "[0, 0, 64]" in str(caught.value)


def test_threads_share_the_child_one_after_the_other():
    def work(model):
        payload, expected = pack(model), model.predict(X)
        return all(np.array_equal(predict(payload, X), expected) for _ in range(5))

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(work, [tree(), linear()] * 2))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_fork_takes_a_child_of_its_own_and_a_child_ends_with_its_parent():
    code = """
import os, sys
from fbo_flower.models import sandbox
sandbox._CHILD.boot = sys.argv[1]
sandbox.confinement()
before = sandbox._CHILD.child.process.pid
child = os.fork()
if child == 0:
    sandbox.confinement()
    assert sandbox._CHILD.child.process.pid != before
    sandbox._CHILD.close()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
sandbox.confinement()
assert sandbox._CHILD.child.process.pid == before
print(before, flush=True)
os._exit(0)  # without any clean-up
"""
    light = "; worker.PRELOADED, worker.EXPORTED, worker._warm_up = (), {}, int; worker.main()"
    command = [sys.executable, "-c", code, BOOT + light]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    pid = int(done.stdout)

    def gone():
        try:
            os.kill(pid, 0)
            return Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z"  # ended, and nobody has asked
        except (ProcessLookupError, FileNotFoundError):
            return True

    wait_until(gone, "the child to end")


def test_the_callers_own_mistakes_are_named_before_anything_is_sent(pool):
    mine = pool("raise SystemExit")
    with pytest.raises(ModelError, match="1 to 10 bytes"):
        predict(pack(tree()), X, Limits(max_bytes=10))
    for match, rows, method in (
        ("method", X, "fit"), ("rows", X[0], "predict"), ("rows", X.astype(object), "predict")
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=match):
            predict(pack(tree()), rows, method=method)
    for options in ({"seconds": -1.0}, {"seconds": np.inf}, {"memory_bytes": 1.5}):
        with pytest.raises(ConfigError, match=next(iter(options))):
            Limits(**options)
    assert mine.child is None


def test_memory_beyond_the_limit_is_refused_and_ends_the_child(shared):
    rows = np.random.default_rng(0).standard_normal((20_000, 5))
    model = make_pipeline(PolynomialFeatures(8), tree()).fit(X, Y)  # 1287 columns: 206 MB
    with pytest.raises(ModelError, match="need at most 67108864 bytes"):
        predict(pack(model), rows, Limits(memory_bytes=64 * 2**20))
    assert not shared.child.alive
