"""Input sets: every form that is offered, and every archive that tries more."""

from __future__ import annotations

import io
import json
import os
import struct
import zipfile
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from oprep.converters import archives
from oprep.converters.files import InputSource, read_input_set, save_input_set
from oprep.opsets.errors import ExitCode, OprepError

pytestmark = pytest.mark.timeout(20)


def refusal(path: Path, **options: Any) -> OprepError:
    with pytest.raises(OprepError) as refused:
        read_input_set(path, **options)
    return refused.value


ARRAYS = {
    "x": np.arange(6, dtype=np.float32).reshape(2, 3),
    "ids": np.array([[1, 2]], np.int64),
    "mask": np.array(True),
    "none": np.zeros((0, 3), np.float16),
    "turned": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
}


def same(found: dict[str | int, Any], wanted: dict[str, Any]) -> None:
    assert set(found) == set(wanted)
    for name, array in wanted.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_an_npz_is_one_set(tmp_path: Path, save: Any) -> None:
    save(tmp_path / "samples.npz", **ARRAYS)
    (found,) = read_input_set(tmp_path / "samples.npz")
    assert found.name == "samples"
    same(found.arrays, ARRAYS)
    assert found.bind([*ARRAYS, "optional"]).keys() == ARRAYS.keys()


def test_an_npz_is_told_by_content(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", x=np.ones(2))
    os.rename(tmp_path / "x.npz", tmp_path / "inputs.bin")
    assert list(read_input_set(tmp_path / "inputs.bin")[0].arrays) == ["x"]


def test_arrays_without_names_go_by_position(tmp_path: Path) -> None:
    np.savez(tmp_path / "p.npz", np.zeros(1), np.ones(2))
    bound = read_input_set(tmp_path / "p.npz")[0].bind(["first", "second"])
    assert {name: array.shape for name, array in bound.items()} == {"first": (1,), "second": (2,)}


def test_names_that_the_model_lacks_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "p.npz", input_ids=np.zeros(1), mask=np.ones(2))
    with pytest.raises(OprepError, match="no input `input_ids`") as refused:
        read_input_set(tmp_path / "p.npz")[0].bind(["ids", "mask"])
    assert refused.value.exit_code == ExitCode.MODEL
    assert "`ids`, `mask`" in str(refused.value)
    np.savez(tmp_path / "p.npz", np.zeros(1), np.ones(2))
    with pytest.raises(OprepError):
        read_input_set(tmp_path / "p.npz")[0].bind(["only"])


def test_a_safetensors_file_is_one_set(tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    arrays = {name: np.ascontiguousarray(array) for name, array in ARRAYS.items()}
    save_file(arrays, tmp_path / "s.safetensors")
    (found,) = read_input_set(tmp_path / "s.safetensors")
    same(found.arrays, arrays)


def safetensors(header: object, data: bytes) -> bytes:
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def test_a_safetensors_file_in_bfloat16_is_read(tmp_path: Path) -> None:
    wanted = np.array([1.5, -2], ml_dtypes.bfloat16)
    header = {"x": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]}}
    (tmp_path / "s").write_bytes(safetensors(header, wanted.tobytes()))
    same(read_input_set(tmp_path / "s")[0].arrays, {"x": wanted})


@pytest.mark.parametrize(
    "entry",
    [
        {"dtype": "F32", "shape": [1 << 60], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [1], "data_offsets": [0, 1 << 60]},
        {"dtype": "X", "shape": [1], "data_offsets": [0, 4]},
    ],
)
def test_p08_a_safetensors_file_that_lies_is_refused(tmp_path: Path, entry: object) -> None:
    (tmp_path / "s").write_bytes(safetensors({"x": entry}, bytes(4)))
    assert refusal(tmp_path / "s").exit_code == ExitCode.MODEL


def test_a_test_data_set_is_read_in_order(tmp_path: Path) -> None:
    for number in (0, 2, 10):
        folder = tmp_path / f"test_data_set_{number}"
        folder.mkdir()
        for index in range(12):
            array = np.full((index + 1,), number, np.float32)
            tensor = numpy_helper.from_array(array, f"x{index}")
            (folder / f"input_{index}.pb").write_bytes(tensor.SerializeToString())
        (folder / "output_0.pb").write_bytes(b"ignored")
    (tmp_path / "model.onnx").touch()
    found = read_input_set(tmp_path)
    assert [source.name for source in found] == [f"test_data_set_{n}" for n in (0, 2, 10)]
    assert list(found[0].arrays) == [f"x{index}" for index in range(12)]
    assert found[2].arrays["x3"].tolist() == [10.0] * 4
    (single,) = read_input_set(tmp_path / "test_data_set_2")
    assert single.arrays["x0"].tolist() == [2.0]


def test_tensors_whose_names_the_model_lacks_go_by_position(tmp_path: Path) -> None:
    for index, name in enumerate(["", "stale"]):
        tensor = numpy_helper.from_array(np.full(2, index), name)
        (tmp_path / f"input_{index}.pb").write_bytes(tensor.SerializeToString())
    (source,) = read_input_set(tmp_path)
    assert list(source.arrays) == [0, "stale"]
    bound = source.bind(["a", "b"])
    assert {name: array.tolist() for name, array in bound.items()} == {"a": [0, 0], "b": [1, 1]}


KINDS = [
    np.arange(3, dtype=np.float32),
    np.arange(3, dtype=np.uint64),
    np.array([1.5, -2], ml_dtypes.bfloat16),
    np.array([1, -2], ml_dtypes.float8_e4m3fn),
    np.array([1, -2, 3], ml_dtypes.int4),
    np.array(["a", "ü"], object),
    np.array(1.5),
    np.zeros((0, 2), np.int8),
]


@pytest.mark.parametrize("array", KINDS, ids=lambda array: str(array.dtype))
def test_a_saved_set_is_read_back(tmp_path: Path, array: Any) -> None:
    folder = save_input_set(tmp_path / "sets", "set 1", {"x": array, "y": np.ones(2)})
    assert folder == tmp_path / "sets" / "set 1"
    (found,) = read_input_set(tmp_path / "sets")
    assert found.name == "set 1"
    same({"x": found.arrays["x"]}, {"x": array})


def test_a_set_that_cannot_be_saved_is_exit_8(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OprepError) as refused:
        save_input_set(tmp_path / "file", "s", {"x": np.ones(1)})
    assert refused.value.exit_code == ExitCode.OUTPUT


TENSORS = [
    (onnx.TensorProto(data_type=1, dims=[1 << 40], raw_data=b"1234"), "needs"),
    (onnx.TensorProto(data_type=1, dims=[-1], raw_data=b"1234"), "negative"),
    (onnx.TensorProto(data_type=250, dims=[1], raw_data=b"1234"), "not known"),
    (onnx.TensorProto(data_type=1, dims=[1], data_location=1), "another file"),
]


@pytest.mark.parametrize(("tensor", "note"), TENSORS)
def test_p08_a_tensor_that_lies_is_refused(tmp_path: Path, tensor: Any, note: str) -> None:
    (tmp_path / "input_0.pb").write_bytes(tensor.SerializeToString())
    error = refusal(tmp_path)
    assert error.exit_code == ExitCode.MODEL
    assert note in str(error)
    assert "input_0.pb" in error.where


def test_bytes_that_are_no_tensor_are_refused(tmp_path: Path) -> None:
    (tmp_path / "input_0.pb").write_bytes(b"\x0a\xff")
    assert refusal(tmp_path).exit_code == ExitCode.MODEL


def test_p10_a_pipe_in_a_set_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "input_0.pb")
    assert "named pipe" in refusal(tmp_path).message


@pytest.mark.parametrize("content", [b"hello", b"", b"{}"])
def test_what_is_no_set_of_inputs_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.npz").write_bytes(content)
    error = refusal(tmp_path / "x.npz")
    assert error.exit_code == ExitCode.MODEL
    assert "not a set of inputs" in error.message
    (tmp_path / "empty").mkdir()
    assert "holds no input set" in refusal(tmp_path / "empty").message
    assert "there is no file" in refusal(tmp_path / "missing").message


def npy(array: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def npy_header(text: str, data: bytes = b"") -> bytes:
    header = text.encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data


def archive(path: Path, *entries: tuple[str, bytes], method: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(path, "w", method) as file:
        for name, data in entries:
            file.writestr(name, data)
    return path


LIARS = [
    npy_header("{'descr': '<f4', 'fortran_order': False, 'shape': (1099511627776,)}", b"1234"),
    npy_header("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}", b"1234"),
    npy_header("{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", b"1234"),
    npy_header("{'descr': '|O', 'fortran_order': False, 'shape': (1,)}", b"12345678"),
    npy_header("{'descr': '|V2', 'fortran_order': False, 'shape': (2,)}", b"1234"),
    npy_header("__import__('os').system('touch /tmp/owned')", b""),
    npy_header("(" * 5000, b""),
    npy_header("[1]", b""),
    b"\x93NUMPY\x09\x00",
    b"\x93NUMPY",
    b"text",
    b"",
]


@pytest.mark.parametrize("data", LIARS)
def test_p08_an_array_that_lies_is_refused(tmp_path: Path, data: bytes) -> None:
    error = refusal(archive(tmp_path / "x.npz", ("x.npy", data)))
    assert error.exit_code == ExitCode.MODEL
    assert "x.npy" in error.where


def test_a_pickled_array_is_refused_and_no_switch_is_advised(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", x=np.array([{}], object))
    error = refusal(tmp_path / "x.npz")
    assert "pickled" in error.notes[0]
    assert "allow_pickle" not in str(error)


@pytest.mark.parametrize("name", ["/abs.npy", "../up.npy", "a/../../b.npy", "a\\b.npy"])
def test_p03_entries_that_lead_out_are_refused(tmp_path: Path, name: str) -> None:
    error = refusal(archive(tmp_path / "x.npz", (name, npy(np.ones(1)))))
    assert error.exit_code == ExitCode.MODEL
    assert "leads out" in error.message


def test_p02_duplicate_entries_are_refused(tmp_path: Path) -> None:
    data = npy(np.ones(1))
    with pytest.warns(UserWarning, match="Duplicate"):
        archive(tmp_path / "x.npz", ("x.npy", data), ("x.npy", data))
    assert "there twice" in refusal(tmp_path / "x.npz").message


def test_p02_bytes_before_the_archive_are_refused(tmp_path: Path) -> None:
    data = archive(tmp_path / "x.npz", ("x.npy", npy(np.ones(1)))).read_bytes()
    (tmp_path / "x.npz").write_bytes(b"PK\x03\x04hidden" + data)
    assert refusal(tmp_path / "x.npz").exit_code == ExitCode.MODEL


def test_p02_a_wrong_checksum_is_refused(tmp_path: Path) -> None:
    path = archive(tmp_path / "x.npz", ("x.npy", npy(np.arange(4.0))))
    data = bytearray(path.read_bytes())
    at = bytes(data).index(np.arange(4.0).tobytes())
    data[at + 9] ^= 1
    path.write_bytes(data)
    assert "damaged" in refusal(path).message


def test_p03_a_bomb_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    bomb = npy(np.zeros(4 << 20, np.uint8))
    path = archive(tmp_path / "x.npz", ("x.npy", bomb), method=zipfile.ZIP_DEFLATED)
    error = refusal(path)
    assert error.exit_code == ExitCode.MODEL
    assert "100:1" in error.message


def test_p03_an_archive_above_the_limit_is_refused(tmp_path: Path) -> None:
    data = npy(np.arange(100_000))
    path = archive(tmp_path / "x.npz", ("x.npy", data), method=zipfile.ZIP_DEFLATED)
    size = path.stat().st_size
    error = refusal(path, max_bytes=size + 1000)
    assert error.exit_code == ExitCode.LIMIT
    assert str(len(data)) in error.notes[0]


@pytest.mark.parametrize("cut", [4, 10, 100, -1, -30])
def test_an_archive_cut_short_is_refused(tmp_path: Path, cut: int) -> None:
    path = archive(tmp_path / "x.npz", ("x.npy", npy(np.ones(50))))
    path.write_bytes(path.read_bytes()[:cut])
    assert refusal(path).exit_code == ExitCode.MODEL


def test_p03_overlapping_entries_are_refused(tmp_path: Path) -> None:
    data = npy(np.ones(3))
    path = archive(tmp_path / "x.npz", ("x.npy", data), ("y.npy", data))
    raw = bytearray(path.read_bytes())
    central = raw.rindex(b"PK\x01\x02")
    raw[central + 42 : central + 46] = struct.pack("<I", 0)
    path.write_bytes(raw)
    error = refusal(path)
    assert error.exit_code == ExitCode.MODEL
    assert "overlaps" in error.message or "damaged" in error.message


def test_a_good_archive_passes_the_gate(tmp_path: Path) -> None:
    from oprep.converters.files import read

    path = archive(tmp_path / "x.zip", ("a/b", b"1"), ("c", b"2"))
    assert dict(archives.members(read(path))) == {"a/b": b"1", "c": b"2"}


def test_a_source_is_a_name_and_arrays() -> None:
    name, arrays, *_ = InputSource("s", {"x": np.ones(1)})
    assert (name, list(arrays)) == ("s", ["x"])
