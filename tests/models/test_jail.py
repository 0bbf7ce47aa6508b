"""A model that takes over the judging child reaches no network, no file and no other process."""

import json
import os
import socket
import subprocess
import sys
from itertools import product

import attack_models
import numpy as np
import pytest
from crafted_models import X, Y, svm
from sklearn.compose import ColumnTransformer
from sklearn.discriminant_analysis import QuadraticDiscriminantAnalysis
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PowerTransformer

from fbo_flower.models import confinement, jail, pack, predict, sandbox

pytestmark = pytest.mark.xdist_group("jail")  # one process starts the two children
TRUSTED = ("attack_models.Attacker",)
WITHOUT_LANDLOCK = sandbox.BOOT.rsplit(";", 1)[0] + (
    "; import functools; worker.confine = functools.partial(worker.confine, ('namespace', 'seccomp'))"
    "; worker.main()"
)
FILTERED = pytest.mark.skipif(
    not jail.machine(), reason="system calls are filtered on Linux on x86_64 and aarch64 only"
)


@pytest.fixture(scope="module", params=["all", "without landlock"])
def judged(request):
    """Say what an attack achieves in a child."""
    if request.param == "all" and not jail.landlock_version():
        pytest.skip("this kernel has no Landlock")
    pool = sandbox.OneChild(sandbox.BOOT if request.param == "all" else WITHOUT_LANDLOCK)
    before, sandbox._CHILD = sandbox._CHILD, pool
    attack("listing", ".")  # the child starts with what is trusted
    if "seccomp" not in confinement().by:
        pytest.skip(f"this kernel lets nobody filter system calls: {confinement()}")
    yield attack
    pool.close()
    sandbox._CHILD = before


def attack(name, argument="", in_process=False):
    model = attack_models.Attacker(name, str(argument)).fit(X)
    return predict(pack(model), X, trusted=TRUSTED, in_process=in_process)[0]


@pytest.fixture
def victim(tmp_path):
    """A file that anybody may read and write, and which must be the same in the end."""
    path = tmp_path / "patients.csv"
    path.write_text("63, male")
    path.chmod(0o666)
    tmp_path.chmod(0o777)
    yield path
    assert path.read_text() == "63, male"
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


@pytest.fixture
def places(victim, tmp_path_factory):
    """What an attack aims at: first where nobody is confined, then where it must fail."""
    sacrifice, path = victim.with_name("sacrifice"), tmp_path_factory.mktemp("s") / "s"
    with socket.socket() as one, socket.socket(socket.AF_UNIX) as other:
        one.bind(("127.0.0.1", 0))
        other.bind(str(path))
        one.listen()
        other.listen()
        yield {
            "port": [one.getsockname()[1]] * 2,
            "socket": [path] * 2,
            "file": [sacrifice, victim],
            "new": [sacrifice, victim.with_name("new")],
        }


@FILTERED
@pytest.mark.parametrize(
    ("name", "aim"),
    [
        *[(name, "port") for name in ("connect", "datagram", "raw_socket_call")],
        ("local_socket", "socket"),
        *[("read", path) for path in ("/etc/passwd", "/proc/self/environ", sys.executable, "patients.csv")],
        *[("listing", path) for path in ("/", ".")],
        ("create", "new"),
        *[(name, "file") for name in ("empty", "rename", "remove", "chmod")],
        *[(name, "") for name in ("fork", "program", "exec_in_place", "signal_parent")],
    ],
)
def test_a_model_reaches_no_network_no_file_and_no_process(judged, victim, places, name, aim):
    if name == "raw_socket_call" and os.uname().machine != "x86_64":
        pytest.skip("the number of the call is that of x86_64")
    free, confined = places.get(aim, [victim.parent / aim] * 2)  # an absolute path stays
    if aim == "file":
        free.write_text("x")
    assert attack(name, free, in_process=True) == "done"
    if aim in {"file", "new"}:
        free.unlink(missing_ok=True)
    mode = victim.stat().st_mode
    codes = (1,) if aim in {"port", "socket"} else (1, 13)
    assert judged(name, confined) in {f"PermissionError {code}" for code in codes}
    assert victim.stat().st_mode == mode


@FILTERED
def test_what_holds_is_what_was_tried(judged):
    assert judged("ring") == "PermissionError 1"
    assert confinement().denied == jail.DENIABLE
    assert confinement().missing == ()
    assert str(confinement()).startswith("denied: network, reading, writing, processes (")


COLUMNS = ColumnTransformer([("a", PowerTransformer(), [0, 2])], remainder="passthrough")


@pytest.mark.parametrize(
    "model", [svm(), make_pipeline(COLUMNS, QuadraticDiscriminantAnalysis(reg_param=0.1))]
)
def test_the_confined_child_predicts_what_the_model_does(judged, model):
    model = model.fit(X, Y)
    np.testing.assert_array_equal(predict(pack(model), X, trusted=TRUSTED), model.predict(X))


def confined(mechanisms, *, code="pass"):
    """What a process that confined itself by these means reports, and what `code` then says."""
    text = (
        "import json\nfrom fbo_flower.models import jail\nsaid = None\n"
        f"held = jail.confine({mechanisms!r})\n{code}\nprint(json.dumps([held.denied, held.by, said]))"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@FILTERED
@pytest.mark.parametrize(
    ("mechanism", "denied"),
    [
        ("namespace", {"network"}),
        ("landlock", {"reading", "writing"}),
        ("seccomp", {"network", "reading", "writing", "processes"}),
    ],
)
def test_each_means_denies_its_part(mechanism, denied):
    found, by, _ = confined((mechanism,))
    if mechanism not in by:
        pytest.skip(f"this kernel refuses {mechanism}")
    assert denied <= set(found)


@FILTERED
def test_a_confined_process_still_starts_threads_and_imports_late_where_files_are_named():
    code = "import threading; t = threading.Thread(target=print); t.start(); t.join()\n"
    code = code.replace("print", "int") + "import wave; said = wave.__name__"
    _, by, said = confined(jail.MECHANISMS, code=code)
    if not {"landlock", "seccomp"} <= set(by):
        pytest.skip("this kernel has one of both only")
    assert said == "wave"


@pytest.mark.skipif(sys.platform != "linux", reason="what other systems deny differs")
def test_without_any_means_nothing_is_claimed():
    denied, by, _ = confined(())
    assert by == []
    assert set(denied) <= {"processes"}  # by a limit, unless root


def test_the_filters_jumps_stay_inside_it():
    kind = [("code", "u2"), ("then", "u1"), ("otherwise", "u1"), ("value", "u4")]
    for machine, reading in product(("x86_64", "aarch64"), (True, False)):
        code = np.frombuffer(jail.program(machine, 4321, reading=reading), dtype=kind)
        jumps = code["code"] & 7 == 5
        furthest = np.arange(len(code)) + 1 + np.maximum(code["then"], code["otherwise"])
        assert (furthest[jumps] < len(code)).all()
        assert code[-1]["code"] == 6
        assert len(code) < 4096
