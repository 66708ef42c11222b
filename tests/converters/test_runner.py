"""Whatever a task does to its process is a result, and nothing of it reaches this one."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from oprep.converters.exchange import CAPTURE
from oprep.converters.runner import Child, Ended, Limits
from oprep.opsets.errors import OprepError

HERE = Path(__file__).parent
QUICK = Limits(seconds=1.0)
pytestmark = pytest.mark.timeout(60)


@pytest.fixture(scope="module")
def warm() -> Iterator[Child]:
    """Give one child for all tests: the one after a crash must find it working."""
    with Child(import_from=(HERE,), limits=Limits(seconds=30.0)) as child:
        yield child


def task(child: Child, name: str, limits: Limits | None = None, **payload: Any) -> Ended:
    return child.call(f"child_tasks:{name}", payload, limits)


def gone(pid: int) -> bool:
    """Tell whether a process ended, within some seconds."""
    end = time.monotonic() + 5
    while time.monotonic() < end:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state == "Z":
            return True
        time.sleep(0.02)
    return False


VALUES = [
    None,
    True,
    -3,
    2**70,
    1.5,
    "grüße\n",
    b"\x00\xff",
    [1, [2, (3, "x")], {}],
    {"a": {"b": (1, 2)}, 3: None},
    np.arange(6, dtype=np.int64).reshape(2, 3),
    np.arange(6, dtype=np.float32).reshape(2, 3).T,
    np.full((), 1.5, np.float32),
    np.zeros((0, 4), np.complex64),
    np.array([True, False]),
    np.array([1, 2], ">i4"),
    np.ones((2, 2), ml_dtypes.bfloat16),
    np.array([1, -2], ml_dtypes.float8_e4m3fn),
    np.array([1, -2], ml_dtypes.int4),
    np.array(["ab", "", "ü"], object),
    np.array([b"ab", b""], object),
    np.array(["ab", "c"]),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_a_value_travels_there_and_back_unchanged(warm: Child, value: Any) -> None:
    ended = task(warm, "echo", value=value)
    assert ended.outcome == "ok", ended.error
    if isinstance(value, np.ndarray):
        assert ended.value.dtype == value.dtype
        assert ended.value.shape == value.shape
        np.testing.assert_array_equal(ended.value, value)
    else:
        assert ended.value == value
        assert type(ended.value) is type(value)


def test_not_finite_floats_travel(warm: Child) -> None:
    value = task(warm, "echo", value=[float("inf"), float("nan")]).value
    assert value[0] == float("inf")
    assert value[1] != value[1]


def test_a_payload_larger_than_any_pipe_travels(warm: Child) -> None:
    array = np.arange(3_000_000, dtype=np.int64)
    ended = task(warm, "echo", value={"x": array, "model": b"\x01" * 5_000_000})
    assert ended.value["model"] == b"\x01" * 5_000_000
    np.testing.assert_array_equal(ended.value["x"], array)
    ended.value["x"][0] = 5


@pytest.mark.parametrize("value", [object(), np.array([object()], object), np.array([{}], object)])
def test_a_value_that_would_need_pickle_is_refused(value: Any) -> None:
    with Child(import_from=(HERE,)) as child, pytest.raises(TypeError, match="cannot travel"):
        task(child, "echo", value=value)


def test_p20_one_warm_child_serves_until_it_dies(warm: Child) -> None:
    first = task(warm, "count").value
    assert task(warm, "count").value == first + 1
    assert task(warm, "fail").outcome == "error"
    assert task(warm, "count").value == first + 2
    assert task(warm, "segfault").outcome == "crashed"
    assert task(warm, "count").value == 1


def test_a_child_killed_between_calls_is_replaced(warm: Child) -> None:
    pid = task(warm, "pid").value
    os.kill(pid, signal.SIGKILL)
    time.sleep(0.05)
    ended = task(warm, "pid")
    assert ended.outcome == "ok"
    assert ended.value != pid


def test_p20_an_exception_is_told_with_type_and_message(warm: Child) -> None:
    ended = task(warm, "fail")
    assert ended.outcome == "error"
    assert ended.error == "ValueError: no such shape"
    assert ended.began == "op acme::gelu"
    assert "Traceback" not in ended.error
    assert "child_tasks.py" in ended.trace


def test_a_long_message_is_cut(warm: Child) -> None:
    assert len(task(warm, "fail", text="x" * 10**6).error) <= 4096


ENDINGS = [
    ("segfault", "SIGSEGV", "ended by SIGSEGV"),
    ("abort", "SIGABRT", "ended by SIGABRT"),
    ("overflow_stack", "SIGSEGV", "ended by SIGSEGV"),
    ("exit_quietly", "", "ended with exit code 0 and no result"),
    ("system_exit", "", "ended with exit code 3 and no result"),
    ("die_and_leave_a_process", "SIGKILL", "ended by SIGKILL"),
]


@pytest.mark.parametrize(("name", "name_of_signal", "error"), ENDINGS)
def test_p20_a_death_is_a_result(warm: Child, name: str, name_of_signal: str, error: str) -> None:
    ended = task(warm, name)
    assert (ended.outcome, ended.signal, ended.error) == ("crashed", name_of_signal, error)
    assert ended.value is None
    assert task(warm, "echo", value=1).value == 1


def test_p20_what_began_is_known_after_a_crash(warm: Child) -> None:
    ended = task(warm, "segfault")
    assert ended.began == "op acme::gelu, node n7"
    assert "Segmentation fault" in ended.stderr


@pytest.mark.parametrize(
    "name", ["spin", "sleep_deaf", "print_without_end", "say_without_end", "result_without_end"]
)
def test_p20_a_task_without_end_is_killed_at_its_limit(warm: Child, name: str) -> None:
    pid = task(warm, "pid").value
    ended = task(warm, name, QUICK)
    assert ended.outcome == "timed out"
    assert ended.error == "no result within 1 s"
    assert gone(pid)
    if name == "spin":
        assert ended.began == "the endless op"


@pytest.mark.parametrize("name", ["eat_memory", "eat_native_memory"])
def test_p22_a_task_that_eats_memory_meets_its_limit(name: str) -> None:
    limits = Limits(seconds=30.0, memory=512 << 20)
    with Child(import_from=(HERE,), limits=limits) as child:
        ended = task(child, name)
        assert ended.outcome == "memory"
        assert task(child, "echo", value=1).value == 1


def test_p06_a_task_cannot_raise_its_memory_limit() -> None:
    with Child(import_from=(HERE,), limits=Limits(seconds=30.0, memory=1 << 30)) as child:
        ended = task(child, "raise_limit")
    assert ended.outcome == "error"
    assert "limit" in ended.error


def test_a_memory_limit_of_one_call_ends_with_it(warm: Child) -> None:
    tight = Limits(seconds=30.0, memory=200 << 20)
    assert task(warm, "big_result", tight, size=256 << 20).outcome == "memory"
    assert len(task(warm, "big_result", size=256 << 20).value) == 256 << 20


@pytest.mark.parametrize("name", ["leave_a_process", "leave_a_daemon"])
def test_p20_processes_left_behind_end_with_the_child(name: str) -> None:
    with Child(import_from=(HERE,)) as child:
        ended = task(child, name)
        assert ended.outcome == "ok", ended
        assert Path(f"/proc/{ended.value}").exists()
    assert gone(ended.value)


def test_p20_a_forked_copy_of_the_task_answers_nothing(warm: Child) -> None:
    assert task(warm, "fork_and_return").value == "both return"
    for number in range(20):
        assert task(warm, "echo", value=number).value == number


def test_p20_output_is_captured_and_bounded(warm: Child, capfd: pytest.CaptureFixture[str]) -> None:
    ended = task(warm, "print_much")
    assert ended.value == 7
    assert ended.stdout.startswith("first line\n")
    assert ended.stdout.endswith("last line\n")
    assert "bytes left out" in ended.stdout
    assert len(ended.stdout) < CAPTURE + 200
    assert len(ended.stderr) < CAPTURE + 200
    assert capfd.readouterr() == ("", "")


def test_what_is_buffered_is_captured_with_its_own_call(warm: Child) -> None:
    ended = task(warm, "print_unflushed")
    assert ended.stdout.split() == ["from", "C", "from", "Python"] or "from C" in ended.stdout
    assert "from Python" in ended.stdout
    assert ended.stderr == "to stderr\n"
    assert task(warm, "echo", value=1).stdout == ""


def test_a_result_above_its_limit_is_refused(warm: Child) -> None:
    small = Limits(seconds=30.0, result=1000)
    ended = task(warm, "big_result", small, size=10**6)
    assert ended.outcome == "crashed"
    assert "1000 are allowed" in ended.error
    assert task(warm, "echo", value=1).value == 1


def test_a_result_that_cannot_travel_is_an_error(warm: Child) -> None:
    ended = task(warm, "unsendable")
    assert ended.outcome == "error"
    assert "`object` cannot travel" in ended.error


def test_p20_junk_on_the_results_is_no_result(warm: Child) -> None:
    ended = task(warm, "scribble", QUICK)
    assert ended.outcome == "crashed"
    assert "not a message" in ended.error
    assert task(warm, "echo", value=1).value == 1


def test_closed_results_are_no_result(warm: Child) -> None:
    assert task(warm, "close_results", QUICK).outcome in ("crashed", "timed out")
    assert task(warm, "echo", value=1).value == 1


FORGED = [
    (b"not json", b"", "not readable"),
    (b"[" * 100_000, b"", "not readable"),
    (b"[1]", b"", "not readable"),
    (b'[{"array": ["<f4", [1099511627776], 0]}, [4]]', b"1234", "does not fit"),
    (b'[{"array": ["<f4", [-1, -1], 0]}, [4]]', b"1234", "does not fit"),
    (b'[{"array": ["|O", [1], 0]}, [8]]', b"12345678", "does not fit"),
    (b'[{"array": ["<f4", [1], 7]}, [4]]', b"1234", "does not fit"),
    (b'[{"array": ["__loader__", [1], 0]}, [4]]', b"1234", "does not fit"),
    (b'[{"object": 1}, []]', b"", "does not fit"),
    (b'[{"strings": [[3], ["a"]]}, []]', b"", "does not fit"),
    (b"[1, [5]]", b"1234", "add up"),
    (b"[1, [-4]]", b"", "no lengths"),
]


@pytest.mark.parametrize(("header", "body", "error"), FORGED)
def test_a_forged_result_builds_nothing(
    warm: Child, header: bytes, body: bytes, error: str
) -> None:
    ended = task(warm, "forge", Limits(seconds=10.0), header=header, body=body)
    assert ended.outcome == "crashed"
    assert error in ended.error


def test_p06_the_child_has_a_place_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPREP_TEST_SECRET", "token")
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    with Child(import_from=(HERE,)) as child:
        found = task(child, "surroundings").value
        folder = Path(found["folder"])
        assert folder.is_dir()
        assert found["mode"] == 0o700
        assert found["session"]
        assert found["environment"]["HOME"] == found["environment"]["TMPDIR"] == str(folder)
        assert found["environment"]["OMP_NUM_THREADS"] == "3"
        assert "OPREP_TEST_SECRET" not in found["environment"]
        assert set(found["environment"]) <= {
            *("PATH", "HOME", "TMPDIR", "LANG", "LC_ALL", "LC_CTYPE", "LD_LIBRARY_PATH"),
            *("CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "MKL_NUM_THREADS"),
            *("OPENBLAS_NUM_THREADS", "GLIBC_TUNABLES", "OPREP_CHILD"),
        }
        own = ("requests", "results", "files")
        assert len(found["open"]) <= 3 + len(own) + 1  # streams, own, the listing itself
    assert not folder.exists()


def test_p06_landlock_confines_the_child(tmp_path: Path) -> None:
    outside, readable = tmp_path / "outside", tmp_path / "readable"
    outside.mkdir()
    readable.mkdir()
    (outside / "secret").write_text("s")
    (readable / "model").write_text("m")
    with socket.socket() as server, Child(import_from=(HERE,), readable=(readable,)) as child:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        ended = task(child, "attempt", outside=str(outside), readable=str(readable), port=port)
    if not ended.sandboxed:
        pytest.skip("this kernel has no Landlock")
    allowed = {"private", "readable"}
    assert {name for name, result in ended.value.items() if result == "done"} == allowed, ended
    assert (outside / "secret").read_text() == "s"
    assert sorted(os.listdir(outside)) == ["secret"]


def test_p06_a_file_alone_can_be_readable(tmp_path: Path) -> None:
    (tmp_path / "model").write_text("m")
    (tmp_path / "secret").write_text("s")
    with Child(import_from=(HERE,), readable=(tmp_path / "model",)) as child:
        found = task(child, "attempt", outside=str(tmp_path), readable=str(tmp_path), port=1)
    if not found.sandboxed:
        pytest.skip("this kernel has no Landlock")
    assert found.value["readable"] == "done"
    assert found.value["read"] == "PermissionError"


def test_onnxruntime_runs_inside(warm: Child, tmp_path: Path) -> None:
    code = "def run(payload, say):\n    import onnxruntime\n    return onnxruntime.__version__\n"
    (tmp_path / "uses_runtime.py").write_text(code)
    with Child(import_from=(tmp_path,)) as child:
        ended = child.call("uses_runtime:run", {})
    import onnxruntime

    assert ended.value == onnxruntime.__version__


@pytest.mark.parametrize("name", ["no_such_module:run", "child_tasks:no_such_task", "child_tasks"])
def test_a_task_that_is_not_there_is_an_error(warm: Child, name: str) -> None:
    assert warm.call(name, {}).outcome == "error"


def test_p26_an_interrupt_ends_the_child() -> None:
    child = Child(import_from=(HERE,))
    pid = task(child, "pid").value
    timer = threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        task(child, "sleep_deaf")
    assert time.monotonic() - began < 2.3
    assert gone(pid)


def test_p26_the_child_dies_with_a_killed_parent(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from oprep.converters.runner import Child\n"
        f"child = Child(import_from=(Path({str(HERE)!r}),))\n"
        "print(child.call('child_tasks:pid', {}).value, child._folder.path, flush=True)\n"
        "child.call('child_tasks:sleep_deaf', {})\n"
    )
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, env=environment, text=True
    ) as parent:
        assert parent.stdout is not None
        pid, folder = parent.stdout.readline().split()
        parent.kill()
    assert gone(int(pid))
    assert Path(folder).is_dir()
    old = time.time() - 1000
    os.utime(folder, (old, old))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(tmp_path))
        with Child(import_from=(HERE,)) as child:
            assert task(child, "echo", value=1).value == 1
            assert len(list(tmp_path.iterdir())) == 1
    assert not list(tmp_path.iterdir())


def test_a_private_folder_in_use_is_not_swept(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(tmp_path))
        with Child(import_from=(HERE,)) as first:
            folder = Path(task(first, "surroundings").value["folder"])
            old = time.time() - 1000
            os.utime(folder, (old, old))
            with Child(import_from=(HERE,)) as second:
                assert task(second, "echo", value=1).value == 1
            assert folder.is_dir()


def test_an_interpreter_that_is_not_there_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    with Child() as child, pytest.raises(OprepError, match="cannot start a child"):
        child.call("child_tasks:pid", {})


def test_a_child_that_cannot_start_is_a_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oprep.converters.runner.BOOT", "raise RuntimeError('no boot')")
    with Child() as child:
        ended = child.call("child_tasks:pid", {})
    assert ended.outcome == "crashed"
    assert ended.error.startswith("the child did not start")
    assert "no boot" in ended.stderr


def test_descriptors_are_given_back(warm: Child) -> None:
    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    def once(name: str) -> None:
        with Child(import_from=(HERE,)) as child, contextlib.suppress(TypeError):
            task(child, name, value=1)

    before = descriptors()
    for name in ("echo", "segfault", "exit_quietly"):
        once(name)
    assert descriptors() == before


def test_a_child_started_before_imports_while_nobody_waits() -> None:
    with Child(import_from=(HERE,)) as child:
        began = time.monotonic()
        child.start(["child_tasks", "no_such_module", "json"])
        assert child.running
        assert time.monotonic() - began < 1.0
        number = task(child, "pid").value
        assert task(child, "imported", module="child_tasks").value
        assert task(child, "pid").value == number
        assert task(child, "exit_quietly").outcome == "crashed"
        assert task(child, "pid").value != number


def test_a_child_that_dies_while_it_imports_is_followed_by_one_that_works() -> None:
    with Child(import_from=(HERE,)) as child:
        child.start(["child_exits"])
        outcomes = [task(child, "pid").outcome for _ in range(2)]
        assert outcomes in (["crashed", "ok"], ["ok", "ok"])  # dead before it was asked, or not
