"""Reading: regular files only, whole or in blocks, unchanged, and told by content."""

from __future__ import annotations

import hashlib
import io
import json
import os
import pickle
import socket
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oprep.converters import formats, reading
from oprep.converters.files import holding, read, require_onnx, sniff, sniff_file, stream
from oprep.converters.reading import Content, identify
from oprep.opsets.errors import ExitCode, OprepError

SAMPLES = Path(__file__).resolve().parents[2] / "sample_models"
pytestmark = pytest.mark.timeout(20)


def test_a_file_is_read_whole_and_hashed(tmp_path: Path) -> None:
    path = tmp_path / "m"
    path.write_bytes(b"abc" * 1000)
    content = read(path)
    assert content.data == b"abc" * 1000
    assert content.sha256 == hashlib.sha256(b"abc" * 1000).hexdigest()


def test_an_empty_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "m").touch()
    assert read(tmp_path / "m").data == b""


def make_irregular(kind: str, folder: Path) -> Path:
    path = folder / "m"
    if kind == "a folder":
        path.mkdir()
    elif kind == "a named pipe":
        os.mkfifo(path)
    elif kind == "a socket":
        before = Path.cwd()
        os.chdir(folder)
        try:
            with socket.socket(socket.AF_UNIX) as made:
                made.bind("m")
        finally:
            os.chdir(before)
    else:
        path.symlink_to("/dev/zero")
    return path


@pytest.mark.parametrize("kind", ["a folder", "a named pipe", "a socket", "a device"])
def test_p10_what_is_no_regular_file_is_refused_at_once(kind: str, tmp_path: Path) -> None:
    path = make_irregular(kind, tmp_path)
    for code in (ExitCode.MODEL, ExitCode.RULES):
        with pytest.raises(OprepError, match=f"is {kind}, not a regular file") as refused:
            read(path, exit_code=code)
        assert refused.value.exit_code == code
    with pytest.raises(OprepError, match="not a regular file"):
        list(stream(path, 0, 10))


def test_p10_a_pipe_that_is_being_written_to_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "m")
    descriptor = os.open(tmp_path / "m", os.O_RDWR | os.O_NONBLOCK)
    try:
        os.write(descriptor, b"data")
        with pytest.raises(OprepError, match="named pipe"):
            read(tmp_path / "m")
    finally:
        os.close(descriptor)


def test_p08_a_file_above_the_limit_is_not_read(tmp_path: Path) -> None:
    with open(tmp_path / "m", "wb") as file:
        file.truncate(1 << 40)
    for limit in (100, None):
        with pytest.raises(OprepError) as refused:
            read(tmp_path / "m", max_bytes=limit)
        assert refused.value.exit_code == ExitCode.LIMIT
        assert str(1 << 40) in str(refused.value)
        assert str(limit or reading.MAX_WHOLE) in str(refused.value)
    (tmp_path / "n").write_bytes(bytes(100))
    assert len(read(tmp_path / "n", max_bytes=100).data) == 100


@pytest.mark.parametrize(
    ("wanted", "near"),
    [
        ("encodr.onnx", "encoder.onnx"),
        ("Encoder.ONNX", "encoder.onnx"),
        ("encoder", "encoder.onnx"),
    ],
)
def test_a_missing_file_is_told_with_near_names(wanted: str, near: str, tmp_path: Path) -> None:
    for name in ("encoder.onnx", "rules.toml", "zzz"):
        (tmp_path / name).touch()
    with pytest.raises(OprepError, match=f"there is no file `{wanted}`") as refused:
        read(tmp_path / wanted)
    assert refused.value.help == f"did you mean `{near}`"


def test_a_missing_folder_and_a_dangling_link_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(OprepError, match="there is no folder"):
        read(tmp_path / "no" / "model.onnx")
    (tmp_path / "link.onnx").symlink_to("gone.onnx")
    with pytest.raises(OprepError, match="symbolic link to a file that does not exist"):
        read(tmp_path / "link.onnx")
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OprepError) as refused:
        read(tmp_path / "a")
    assert refused.value.exit_code == ExitCode.MODEL


@pytest.mark.parametrize("name", ["x" * 300, "nul\0byte"])
def test_an_impossible_name_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(OprepError, match="cannot be opened"):
        read(tmp_path / name)


def test_p12_a_file_that_changes_while_it_is_read_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "m"
    path.write_bytes(bytes(1000))
    real = os.fstat
    calls = []

    def fstat(descriptor: int) -> os.stat_result:
        calls.append(descriptor)
        if len(calls) == 3:
            path.write_bytes(bytes(2000))
        return real(descriptor)

    monkeypatch.setattr(reading.os, "fstat", fstat)
    with pytest.raises(OprepError, match="changed while it was being read"):
        read(path)


def test_part_of_a_file_is_streamed_in_blocks(tmp_path: Path) -> None:
    data = os.urandom(10_000)
    (tmp_path / "m").write_bytes(data)
    blocks = list(stream(tmp_path / "m", 100, 5000, block=512))
    assert b"".join(blocks) == data[100:5100]
    assert max(map(len, blocks)) == 512
    assert list(stream(tmp_path / "m", 0, 0)) == []


def test_a_stream_past_the_end_is_refused(tmp_path: Path) -> None:
    (tmp_path / "m").write_bytes(bytes(10))
    with pytest.raises(OprepError, match="shorter than expected") as refused:
        list(stream(tmp_path / "m", 4, 10))
    assert "4 are missing" in str(refused.value)


def test_p12_another_file_at_the_place_of_the_checked_one_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m"
    path.write_bytes(bytes(10))
    state, real = identify(path)
    expected = reading.Identity.of(state)
    assert real is None or real == str(path)
    assert b"".join(stream(path, 0, 10, expected=expected)) == bytes(10)
    (tmp_path / "other").write_bytes(bytes(10))
    os.replace(tmp_path / "other", path)
    with pytest.raises(OprepError, match="changed"):
        list(stream(path, 0, 10, expected=expected))
    path.unlink()
    path.symlink_to("elsewhere")
    with pytest.raises(OprepError, match="symbolic link"):
        list(stream(path, 0, 10, expected=expected))


def zipped(*names: str) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name in names:
            archive.writestr(name, "x")
    return file.getvalue()


def saved(*, archive: bool) -> bytes:
    file = io.BytesIO()
    if archive:
        np.savez(file, x=np.ones(3))
    else:
        np.save(file, np.ones(3))
    return file.getvalue()


SAFETENSORS = b'{"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
FORMATS = {
    "onnx": (SAMPLES / "encoder.onnx").read_bytes(),
    "pt2": zipped("m/archive_format", "m/models/model.json"),
    "aoti": zipped("m/archive_format", "m/data/aotinductor/model/x.so"),
    "old-pt2": zipped("version", "serialized_exported_program.json"),
    "torchscript": zipped("m/code/__torch__.py", "m/constants.pkl", "m/data.pkl"),
    "torch": zipped("m/data.pkl", "m/data/0"),
    "npz": saved(archive=True),
    "npy": saved(archive=False),
    "zip": zipped("a.txt"),
    "pickle": pickle.dumps({"a": 1}),
    "safetensors": len(SAFETENSORS).to_bytes(8, "little") + SAFETENSORS + bytes(4),
    "tflite": b"\x1c\x00\x00\x00TFL3" + bytes(20),
    "gguf": b"GGUF" + bytes(20),
    "hdf5": b"\x89HDF\r\n\x1a\n" + bytes(20),
    "gzip": b"\x1f\x8b\x08" + bytes(20),
    "elf": b"\x7fELF\x02" + bytes(20),
    "git-lfs": b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n",
    "html": b"\n<!DOCTYPE html>\n<html><body>404</body></html>",
    "json": b' {"a": 1}',
    "text": "format = 1\n# grüße\n".encode(),
    "empty": b"",
    "unknown": bytes(range(256)),
}


@pytest.mark.parametrize("name", FORMATS)
def test_p02_the_format_is_told_by_content(name: str) -> None:
    assert sniff(FORMATS[name]) == name
    content = Content(Path("model.onnx"), FORMATS[name], "")
    if name == "onnx":
        require_onnx(content)
        return
    with pytest.raises(OprepError) as refused:
        require_onnx(content)
    assert refused.value.exit_code == ExitCode.MODEL
    assert formats.WORDS[name] in refused.value.message


@pytest.mark.parametrize("name", FORMATS)
def test_p02_a_file_that_is_held_open_is_told_by_content_too(name: str, tmp_path: Path) -> None:
    path = tmp_path / "model"
    path.write_bytes(FORMATS[name])
    with holding(path) as file:
        assert sniff_file(file) == name
    assert sniff_file(Content(path, FORMATS[name], "")) == name


@pytest.mark.parametrize(("name", "head"), [("safetensors", 8), ("onnx", 0)])
def test_a_large_file_is_told_by_its_beginning(name: str, head: int, tmp_path: Path) -> None:
    path, table = tmp_path / "model", b"{" + b" " * (3 << 20) + b"}"
    start = len(table).to_bytes(8, "little") + table if head else b"\x08\x07\x3a\xff\xff\xff\x0f"
    path.write_bytes(start + bytes(1 << 21))
    with holding(path) as file:
        assert sniff_file(file) == name


def test_every_format_has_an_example() -> None:
    assert set(FORMATS) == set(formats.WORDS)


@pytest.mark.parametrize("length", [1, 2, 10, 100, 1000, 50_000])
def test_a_model_that_is_cut_short_is_still_onnx(length: int) -> None:
    assert sniff(FORMATS["onnx"][:length]) == "onnx" or length < 3


def test_a_long_text_is_text_wherever_a_character_is_cut() -> None:
    for start in range(4):
        assert sniff(b"x" * start + "ü".encode() * 50_000) == "text"
    assert sniff(json.dumps(list(range(30_000))).encode()) == "json"


@given(st.binary(max_size=300))
def test_any_bytes_have_a_format(data: bytes) -> None:
    assert sniff(data) in formats.WORDS


@given(st.sampled_from(sorted(FORMATS)), st.integers(0, 10_000), st.binary(max_size=4))
def test_damaged_files_have_a_format(name: str, at: int, noise: bytes) -> None:
    data = FORMATS[name][:3000]
    at %= len(data) + 1
    assert sniff(data[:at] + noise + data[at + len(noise) :]) in formats.WORDS


def test_repeated_fields_do_not_take_for_ever() -> None:
    assert sniff(b"\x08\x07" * 3_000_000) == "onnx"
