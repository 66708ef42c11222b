"""Writing: the whole artifact or nothing, whatever fails, and never over what must stay."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import onnx
import pytest

from oprep.converters import output as output_module
from oprep.converters import staging
from oprep.converters.files import Identity, Output, write_text
from oprep.opsets.errors import ExitCode, OprepError

pytestmark = pytest.mark.timeout(60)
MODEL = b"\x08\x08\x3a\x25"
"""The start of a protobuf: IR version 8 and a graph of 37 bytes."""


def write_artifact(path: Path, data: bytes, **options: object) -> str:
    """Write external data, a model that names it, and a sidecar that vouches for both."""
    with Output(path, **options) as output:  # type: ignore[arg-type]
        name, _ = output.write_data([data, data])
        digest = output.write([MODEL, name.encode()])
        subjects = [{"name": path.name, "sha256": digest}, {"name": name}]
        output.write_side(f"{path.name}.oprep.json", [json.dumps({"subject": subjects}).encode()])
        output.commit()
    return name


def check_whole(path: Path) -> bytes | None:
    """Give the data of the artifact at `path`, after checking that it belongs together."""
    if not path.exists():
        return None
    name = path.read_bytes().removeprefix(MODEL).decode()
    data = (path.parent / name).read_bytes()
    assert hashlib.sha256(data).hexdigest().startswith(name.removesuffix(".data"))
    sidecar = path.parent / f"{path.name}.oprep.json"
    if sidecar.exists():
        subject = json.loads(sidecar.read_text())["subject"][0]
        assert subject["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    return data[: len(data) // 2]


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


def refusal(path: Path, **options: object) -> OprepError:
    with pytest.raises(OprepError) as refused:
        write_artifact(path, b"new", **options)
    assert refused.value.exit_code == ExitCode.OUTPUT
    return refused.value


def test_p24_an_artifact_appears_with_data_and_sidecar(tmp_path: Path) -> None:
    name = write_artifact(tmp_path / "m.onnx", b"one")
    assert check_whole(tmp_path / "m.onnx") == b"one"
    assert names(tmp_path) == sorted([name, "m.onnx", "m.onnx.oprep.json"])


def test_p24_nothing_appears_before_commit_or_without_it(tmp_path: Path) -> None:
    with Output(tmp_path / "m.onnx") as output:
        output.write([b"x"])
        output.write_side("side", [b"y"])
        assert not (tmp_path / "m.onnx").exists()
        assert not (tmp_path / "side").exists()
    assert names(tmp_path) == []


def test_p27_old_data_is_replaced_and_never_appended(tmp_path: Path) -> None:
    first = write_artifact(tmp_path / "m.onnx", b"one")
    second = write_artifact(tmp_path / "m.onnx", b"two" * 1000)
    assert first != second
    assert names(tmp_path) == sorted([second, "m.onnx", "m.onnx.oprep.json"])
    write_artifact(tmp_path / "m.onnx", b"two" * 1000)
    assert check_whole(tmp_path / "m.onnx") == b"two" * 1000


def test_data_that_another_model_names_stays(tmp_path: Path) -> None:
    shared = write_artifact(tmp_path / "a.onnx", b"one")
    assert write_artifact(tmp_path / "b.onnx", b"one") == shared
    write_artifact(tmp_path / "a.onnx", b"two")
    assert check_whole(tmp_path / "a.onnx") == b"two"
    assert check_whole(tmp_path / "b.onnx") == b"one"
    os.rename(tmp_path / "b.onnx", tmp_path / "best.onnx")
    write_artifact(tmp_path / "b.onnx", b"three")
    assert check_whole(tmp_path / "best.onnx") == b"one"


def test_weights_that_look_like_a_name_hold_nothing_back(tmp_path: Path) -> None:
    first = write_artifact(tmp_path / "m.onnx", b"one")
    (tmp_path / "weights.bin").write_bytes(bytes(100) + first.encode())
    write_artifact(tmp_path / "m.onnx", b"two")
    assert not (tmp_path / first).exists()


def test_a_name_at_the_edge_of_two_blocks_is_found(tmp_path: Path) -> None:
    first = write_artifact(tmp_path / "m.onnx", b"one")
    for shift in range(0, 38, 3):
        text = "x" * ((1 << 20) - 6 - shift) + first
        other = onnx.ModelProto(ir_version=8, doc_string=text, producer_name="y")
        (tmp_path / "other.onnx").write_bytes(other.SerializeToString())
        write_artifact(tmp_path / "m.onnx", b"two")
        assert (tmp_path / first).exists()
        write_artifact(tmp_path / "m.onnx", b"one")


def test_a_sidecar_cannot_have_other_files_removed(tmp_path: Path) -> None:
    victims = ["important.txt", "../above", "sub/file"]
    folder = tmp_path / "folder"
    (folder / "sub").mkdir(parents=True)
    for victim in victims:
        (folder / victim).write_text("keep")
    text = json.dumps({"subject": [{"name": victim} for victim in victims]})
    (folder / "m.onnx.oprep.json").write_text(text)
    (folder / ".m.onnx.oprep-old").write_text("\n".join(victims))
    write_artifact(folder / "m.onnx", b"one")
    assert all((folder / victim).read_text() == "keep" for victim in victims)


@pytest.mark.parametrize("text", ["[]", "{", '{"subject": 3}', "[" * 10_000, "\xff", ""])
def test_a_broken_old_sidecar_is_replaced(tmp_path: Path, text: str) -> None:
    (tmp_path / "m.onnx.oprep.json").write_text(text)
    write_artifact(tmp_path / "m.onnx", b"one")
    assert check_whole(tmp_path / "m.onnx") == b"one"


@pytest.mark.parametrize("mask", [0o022, 0o077, 0o000])
def test_p24_a_new_file_has_the_mode_that_umask_says(tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        name = write_artifact(tmp_path / "m.onnx", b"one")
    finally:
        os.umask(before)
    for written in ("m.onnx", "m.onnx.oprep.json", name):
        assert stat.S_IMODE((tmp_path / written).stat().st_mode) == 0o666 & ~mask


def test_p24_a_replaced_file_keeps_its_mode(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(b"old")
    (tmp_path / "m.onnx").chmod(0o640)
    name = write_artifact(tmp_path / "m.onnx", b"one")
    assert stat.S_IMODE((tmp_path / "m.onnx").stat().st_mode) == 0o640
    assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o640


def test_p27_a_folder_a_link_and_a_pipe_are_refused(tmp_path: Path) -> None:
    (tmp_path / "folder.onnx").mkdir()
    (tmp_path / "target").write_bytes(b"keep")
    (tmp_path / "link.onnx").symlink_to("target")
    (tmp_path / "dangling.onnx").symlink_to("nowhere")
    os.mkfifo(tmp_path / "pipe.onnx")
    before = names(tmp_path)
    for name, kind in {
        "folder.onnx": "a folder",
        "link.onnx": "a symbolic link",
        "dangling.onnx": "a symbolic link",
        "pipe.onnx": "a named pipe",
    }.items():
        assert f"`{name}` is {kind}" in refusal(tmp_path / name).message
    assert names(tmp_path) == before
    assert (tmp_path / "target").read_bytes() == b"keep"
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("name", ["no/m.onnx", "file/m.onnx", "."])
def test_a_place_that_is_none_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    refusal(tmp_path / name)
    assert names(tmp_path) == ["file"]


def test_p27_the_input_is_refused_under_every_name(tmp_path: Path) -> None:
    model = tmp_path / "model.onnx"
    model.write_bytes(b"input")
    os.link(model, tmp_path / "hard.onnx")
    (tmp_path / "sub").mkdir()
    (tmp_path / "here").symlink_to(".")
    for path in (
        model,
        tmp_path / "hard.onnx",
        tmp_path / "sub" / ".." / "model.onnx",
        tmp_path / "here" / "model.onnx",
        tmp_path / "MODEL.onnx",
    ):
        assert "is an input" in refusal(path, inputs=[model]).message
    assert model.read_bytes() == b"input"


def test_p27_in_place_replaces_the_input_and_only_that(tmp_path: Path) -> None:
    model, data = tmp_path / "model.onnx", tmp_path / "weights"
    model.write_bytes(b"input")
    data.write_bytes(b"weights")
    assert "is an input" in refusal(data, inputs=[model, data], in_place=True).message
    write_artifact(model, b"one", inputs=[model, data], in_place=True)
    assert check_whole(model) == b"one"
    assert data.read_bytes() == b"weights"


def test_p27_a_sidecar_never_replaces_an_input(tmp_path: Path) -> None:
    rules = tmp_path / "m.onnx.oprep.json"
    rules.write_text("rules")
    assert "is an input" in refusal(tmp_path / "m.onnx", inputs=[rules]).message
    assert rules.read_text() == "rules"
    assert names(tmp_path) == ["m.onnx.oprep.json"]


def test_p27_data_that_is_the_inputs_own_stays_the_inputs(tmp_path: Path) -> None:
    name = write_artifact(tmp_path / "a.onnx", b"one")
    before = Identity.of((tmp_path / name).stat())
    write_artifact(tmp_path / "b.onnx", b"one", inputs=[tmp_path / "a.onnx", tmp_path / name])
    assert Identity.of((tmp_path / name).stat()) == before


def test_data_at_the_inputs_location_is_written_once(tmp_path: Path) -> None:
    def write(content: bytes) -> None:
        with Output(tmp_path / "m.onnx") as output:
            output.write_data_at("sub/deep/weights", [content])
            output.write([b"model"])
            output.commit()

    write(b"one")
    assert (tmp_path / "sub/deep/weights").read_bytes() == b"one"
    write(b"one")
    with pytest.raises(OprepError, match="exists and holds other data"):
        write(b"two")
    assert (tmp_path / "sub/deep/weights").read_bytes() == b"one"
    assert names(tmp_path) == ["m.onnx", "sub"]


@pytest.mark.parametrize("location", ["/abs", "../up", "a/../../up", ""])
def test_data_is_never_written_outside_of_the_folder(tmp_path: Path, location: str) -> None:
    with Output(tmp_path / "m.onnx") as output, pytest.raises(ValueError, match="below"):
        output.write_data_at(location, [b"x"])
    outside = tmp_path / "outside"
    outside.mkdir()
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "link").symlink_to(outside)
    with Output(tmp_path / "in" / "m.onnx") as output:
        output.write_data_at("link/weights", [b"x"])
        output.write([b"model"])
        with pytest.raises(OprepError, match="leads out"):
            output.commit()
    assert names(outside) == []


@pytest.mark.parametrize("name", ["a/b", "..", "", "m.onnx"])
def test_a_side_file_has_a_bare_name(tmp_path: Path, name: str) -> None:
    with Output(tmp_path / "m.onnx") as output, pytest.raises(ValueError, match="bare name"):
        output.write_side(name, [b"x"])


def test_names_as_long_as_the_system_allows_are_written(tmp_path: Path) -> None:
    path = tmp_path / ("ü" * 127)
    for data in (b"one", b"two"):
        with Output(path) as output:
            output.write([data])
            output.commit()
        assert path.read_bytes() == data
    assert "cannot be written" in refusal(tmp_path / ("x" * 300)).message


class Broken(Exception):
    """Stands for a process that dies at this very place."""


STEPS = ("replace", "unlink", "fsync", "write", "open", "link", "fchmod")


def break_at(patch: pytest.MonkeyPatch, number: int, raised: BaseException) -> list[str]:
    """Let the `number`th step that changes a folder or file fail; give the list of those done."""
    done: list[str] = []

    def wrap(name: str) -> None:
        real = getattr(os, name)

        def step(*words: object, **options: object) -> object:
            done.append(name)
            if len(done) == number:
                raise raised
            return real(*words, **options)

        patch.setattr(os, name, step)

    for name in STEPS:
        wrap(name)
    return done


def count_steps(path: Path) -> int:
    with pytest.MonkeyPatch.context() as patch:
        done = break_at(patch, -1, Broken())
        write_artifact(path, b"old")
        done.clear()
        write_artifact(path, b"new")
        return len(done)


@pytest.mark.parametrize("raised", [Broken(), OSError(errno.EIO, "I/O"), KeyboardInterrupt()])
def test_p24_p26_at_every_step_the_old_or_the_new_artifact_is_whole(
    tmp_path: Path, raised: BaseException
) -> None:
    (tmp_path / "count").mkdir()
    steps = count_steps(tmp_path / "count" / "m.onnx")
    assert steps > 20
    seen = set()
    for number in range(1, steps + 1):
        path = tmp_path / f"{number}" / "m.onnx"
        path.parent.mkdir()
        write_artifact(path, b"old")
        with pytest.MonkeyPatch.context() as patch:
            break_at(patch, number, raised)
            with contextlib.suppress(Broken, KeyboardInterrupt, OprepError):
                write_artifact(path, b"new")
        found = check_whole(path)
        assert found in (b"old", b"new")
        seen.add(found)
        write_artifact(path, b"next")
        assert check_whole(path) == b"next"
        assert len(names(path.parent)) == 3, names(path.parent)
    assert seen == {b"old", b"new"}


def test_p24_a_failed_commit_leaves_the_old_artifact_with_its_sidecar(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    write_artifact(path, b"old")
    before = names(tmp_path)
    with pytest.MonkeyPatch.context() as patch:

        def refuse(self: staging.Staged, name: str) -> None:
            if name == "m.onnx":
                raise OSError(errno.EIO, "I/O")
            os.replace(self.folder / self.name, self.folder / name)

        patch.setattr(staging.Staged, "rename", refuse)
        patch.setattr(output_module.Staged, "rename", refuse)
        with pytest.raises(OprepError, match="cannot be written"):
            write_artifact(path, b"new")
    assert check_whole(path) == b"old"
    assert names(tmp_path) == before


def test_p24_what_is_read_back_must_be_what_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.write

    def spoil(descriptor: int, data: memoryview) -> int:
        return real(descriptor, bytes(len(data)))

    monkeypatch.setattr(staging.os, "write", spoil)
    error = refusal(tmp_path / "m.onnx")
    assert "differs" in error.notes[0]
    assert names(tmp_path) == []


CHILD = """
import sys
from pathlib import Path
sys.path.insert(0, {folder!r})
import signal
signal.signal(signal.SIGTERM, lambda *_: (_ for _ in ()).throw(SystemExit(143)))
from test_output import write_artifact
{code}
"""


def start(code: str) -> subprocess.Popen[str]:
    text = CHILD.format(folder=str(Path(__file__).parent), code=code)
    return subprocess.Popen(
        [sys.executable, "-c", text], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


SLOW = """
import time
from oprep.converters.files import Output
def chunks():
    yield b"x" * 1000
    print("writing", flush=True)
    time.sleep(60)
with Output(Path({path!r})) as output:
    output.write(chunks())
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_p26_a_signal_leaves_no_temp_file(tmp_path: Path, number: signal.Signals) -> None:
    (tmp_path / "m.onnx").write_bytes(b"old")
    with start(SLOW.format(path=str(tmp_path / "m.onnx"))) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "writing\n"
        assert len(names(tmp_path)) == 2
        process.send_signal(number)
        process.wait(5)
    assert names(tmp_path) == ["m.onnx"]
    assert (tmp_path / "m.onnx").read_bytes() == b"old"


def test_p26_the_next_run_removes_what_a_killed_one_left(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(b"old")
    with start(SLOW.format(path=str(path))) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "writing\n"
        with Output(path) as output:
            assert len(names(tmp_path)) == 2, "a living run's temp file stays"
            output.write([b"new"])
            output.commit()
        assert len(names(tmp_path)) == 2
        process.kill()
    assert len(names(tmp_path)) == 2
    write_text(tmp_path / "other", "not its owner")
    assert len(names(tmp_path)) == 3
    write_text(path, "newer")
    assert names(tmp_path) == ["m.onnx", "other"]


WRITER = """
path = Path({path!r})
print("ready", flush=True)
sys.stdin.read(0)
for number in range(25):
    write_artifact(path, b"{letter}%d" % number)
"""


def test_p28_two_writers_leave_one_whole_artifact(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    reads = 0
    writers = [start(WRITER.format(path=str(path), letter=letter)) for letter in "ab"]
    try:
        while any(writer.poll() is None for writer in writers):
            try:
                model = path.read_bytes()
            except FileNotFoundError:
                continue
            assert model.startswith(MODEL)
            assert len(model) == len(MODEL) + 37
            reads += 1
    finally:
        results = [writer.communicate(timeout=30) for writer in writers]
    for writer, (_, error) in zip(writers, results, strict=True):
        assert writer.returncode == 0, error
    assert reads > 10
    assert check_whole(path) in (b"a24", b"b24")
    assert len(names(tmp_path)) == 3


def test_p28_a_folder_that_stays_locked_is_busy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "BUSY_SECONDS", 0.1)
    descriptor = os.open(tmp_path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        assert "is busy" in refusal(tmp_path / "m.onnx").message
    finally:
        os.close(descriptor)
    assert names(tmp_path) == []


def test_p28_threads_wait_for_each_other(tmp_path: Path) -> None:
    threads = [
        threading.Thread(target=write_artifact, args=(tmp_path / "m.onnx", b"%d" % number))
        for number in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert check_whole(tmp_path / "m.onnx") is not None
    assert len(names(tmp_path)) == 3


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Give a file system of one megabyte."""
    folder = tmp_path / "disk"
    folder.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if os.geteuid() or subprocess.run(words, capture_output=True, check=False).returncode:
        pytest.skip("a file system cannot be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.parametrize("told", [True, False])
def test_p25_a_full_disk_is_told_with_bytes(small_disk: Path, told: bool) -> None:
    path = small_disk / "m.onnx"
    write_artifact(path, b"old")
    before = names(small_disk)
    size = 3 << 20
    taken = 0

    def chunks() -> Iterator[bytes]:
        nonlocal taken
        for _ in range(3 << 4):
            taken += 1
            yield bytes(1 << 16)

    with pytest.raises(OprepError) as refused, Output(path) as output:
        output.write(chunks(), size=size if told else None)
    error = refused.value
    assert error.exit_code == ExitCode.OUTPUT
    assert "bytes are free" in error.notes[1]
    assert (f"{size} bytes are needed" in error.notes[1]) == told
    assert (taken == 0) == told
    assert names(small_disk) == before
    assert check_whole(path) == b"old"


@pytest.mark.parametrize(
    "number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EACCES]
)
def test_p25_what_the_system_refuses_is_exit_8(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    write_artifact(tmp_path / "m.onnx", b"old")
    before = names(tmp_path)

    def refuse(descriptor: int, data: bytes) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(staging.os, "write", refuse)
    error = refusal(tmp_path / "m.onnx")
    assert os.strerror(number) in error.notes[0]
    assert names(tmp_path) == before
    assert check_whole(tmp_path / "m.onnx") == b"old"


def test_p25_a_file_size_limit_is_told(tmp_path: Path) -> None:
    code = f"""
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
from oprep.opsets.errors import OprepError
try:
    write_artifact(Path({str(tmp_path / "m.onnx")!r}), bytes(200_000))
except OprepError as error:
    print(int(error.exit_code), error)
"""
    with start(code) as process:
        out, err = process.communicate(timeout=20)
    assert out.startswith("8 "), err
    assert "File too large" in out
    assert names(tmp_path) == []


def test_p25_a_read_only_folder_is_told(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    tmp_path.chmod(0o500)
    try:
        assert "Permission denied" in refusal(tmp_path / "m.onnx").notes[0]
    finally:
        tmp_path.chmod(0o700)


def test_an_error_of_the_chunks_themselves_is_not_changed(tmp_path: Path) -> None:
    def chunks() -> Iterator[bytes]:
        yield b"x"
        raise OprepError("the input is cut", exit_code=ExitCode.MODEL)

    with pytest.raises(OprepError, match="the input is cut"), Output(tmp_path / "m") as output:
        output.write(chunks())
    assert names(tmp_path) == []


def test_p32_a_big_file_is_copied_in_blocks(tmp_path: Path) -> None:
    code = f"""
from oprep.converters.files import Output, stream
source = Path({str(tmp_path / "big")!r})
with open(source, "wb") as file:
    file.truncate(400 << 20)
with Output(Path({str(tmp_path / "out")!r})) as output:
    output.write_data(stream(source, 0, 400 << 20), size=400 << 20)
    output.write([b"m"])
    output.commit()
peak = Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]
print(peak)  # not ru_maxrss: that counts the process which started this one
"""
    with start(code) as process:
        out, err = process.communicate(timeout=50)
    assert int(out) < 100 * 1024, err


def test_a_text_is_written_whole(tmp_path: Path) -> None:
    for text in ("grüße\n", ""):
        write_text(tmp_path / "report.md", text)
        assert (tmp_path / "report.md").read_text(encoding="utf-8") == text
    with pytest.raises(OprepError) as refused:
        write_text(tmp_path, "x")
    assert refused.value.exit_code == ExitCode.OUTPUT


def test_descriptors_are_given_back(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        write_artifact(tmp_path / "m.onnx", b"one")
        refusal(tmp_path / "no" / "m.onnx")
        with Output(tmp_path / "m.onnx") as output:
            output.write([b"x"])
    assert len(os.listdir("/proc/self/fd")) == before
