"""Files of torch.save: weights pass, code does not; told by the opcodes alone."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from corpus.hostile_pt2 import CODE, pickle_that_runs, torch_file, unpacked, zipped
from hypothesis import given
from hypothesis import strategies as st
from torch_child import call

from oprep.converters.pt2.pickles import Damaged, first_forbidden
from oprep.converters.pt2.torch_files import Kind, TorchFile, gate_state_dict, inspect
from oprep.converters.reading import Content, holding
from oprep.opsets.errors import ExitCode, OprepError

MADE = str(Path(__file__).with_name("torch_made.py"))


def content(data: bytes) -> Content:
    return Content(Path("model.pt"), data, "")


@pytest.mark.parametrize("name", ["state", "state_old"])
def test_a_state_dict_is_plain_in_both_formats(name, saved, tmp_path):
    found = gate_state_dict(content(saved[name]))
    assert found == TorchFile(Kind.WEIGHTS, legacy=name.endswith("old"))
    path = tmp_path / "model.pt"
    path.write_bytes(saved[name])
    with holding(path) as file:
        assert gate_state_dict(file) == found


@pytest.mark.parametrize("name", ["checkpoint", "checkpoint_old"])
def test_a_checkpoint_of_plain_data_is_plain(name, saved):
    assert gate_state_dict(content(saved[name])).plain


@pytest.mark.parametrize("name", ["state", "checkpoint", "state_old", "checkpoint_old"])
def test_what_is_plain_is_loaded_by_the_weights_only_loader(name, saved):
    keys = call(MADE, "loads", {"data": np.frombuffer(saved[name], np.uint8)}, 60)
    assert keys == (["0.bias", "0.weight"] if name.startswith("state") else keys)
    assert "model" in keys or name.startswith("state")


@pytest.mark.parametrize(
    ("name", "imports"),
    [
        ("module", "torch.nn.modules.container.Sequential"),
        ("module_old", "torch.nn.modules.container.Sequential"),
        ("function", "builtins.len"),
        ("function_old", "builtins.len"),
        ("plain_pickle", "torch.nn.modules.container.Sequential"),
    ],
)
def test_p01_code_is_refused_by_the_name_of_its_first_class(name, imports, saved):
    with pytest.raises(OprepError) as refused:
        gate_state_dict(content(saved[name]))
    error = refused.value
    assert error.exit_code == ExitCode.UNTRUSTED
    assert error.message == "`model.pt` can only be loaded by running code stored in it"
    assert error.where.replace("__builtin__", "builtins").endswith(
        f"model.pt, PyTorch pickle of class `{imports}`"
    )
    assert error.help == "export it to `.pt2`, or pass `--trust-model` if the file is yours"
    found = gate_state_dict(content(saved[name]), trusted=True)
    assert found.kind is Kind.PICKLE


def test_p01_torchscript_is_refused_as_such(saved):
    with pytest.raises(OprepError) as refused:
        gate_state_dict(content(saved["torchscript"]))
    assert refused.value.exit_code == ExitCode.UNTRUSTED
    assert refused.value.where == "model.pt, TorchScript archive"


def test_a_plain_pickle_is_no_file_of_weights(saved):
    assert not inspect(content(saved["numbers_pickle"])).plain


def test_p01_code_behind_the_weights_of_the_old_format_is_found(saved):
    data = saved["state_old"]
    for hidden in (pickle_that_runs(CODE), pickle_that_runs(CODE)[:-1] + b"0N."):
        for at in range(5):
            assert not inspect(content(inserted(data, at, hidden))).plain


def inserted(data: bytes, before: int, pickled: bytes) -> bytes:
    """Put a pickle in front of one of the five of the old format."""
    import pickletools

    stream = io.BytesIO(data)
    for _ in range(before):
        for _ in pickletools.genops(stream):
            pass
    at = stream.tell()
    return data[:at] + pickled + data[at:]


HOSTILE_PICKLES = {
    "exec": pickle_that_runs(CODE),
    "loads from bytes": b"\x80\x02ctorch.storage\n_load_from_bytes\nC\x01x\x85R.",
    "protocol 4": b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x02id\x85R.",
    "inst": b"(S'id'\nios\nsystem\n.",
    "object": b"(cos\nsystem\nS'id'\no.",
    "persistent id as text": b"Pid\n.",
    "extension": b"\x82\x01.",
    "name with a blank": b"\x80\x02cos system\nx\n.",
    "getattr": b"\x80\x02c__builtin__\ngetattr\n.",
    "much memory": b"\x80\x02c__builtin__\nbytearray\n\x8a\x06" + b"\xff" * 5 + b"\x00\x85R.",
    "new object with keywords": b"\x80\x04)}\x92.",
}


@pytest.mark.parametrize("name", HOSTILE_PICKLES)
def test_p04_no_other_import_or_opcode_is_let_through(name):
    assert first_forbidden(io.BytesIO(HOSTILE_PICKLES[name])) is not None
    assert not inspect(content(torch_file(HOSTILE_PICKLES[name]))).plain


def test_p02_what_torch_would_take_for_torchscript_is_code():
    plain = b"\x80\x02}."
    assert inspect(content(torch_file(plain))).plain
    more = {"constants.pkl": b"\x80\x02)."}
    assert inspect(content(torch_file(plain, **more))).kind is Kind.TORCHSCRIPT


def test_an_old_tar_file_is_never_plain():
    import tarfile

    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name in ("sys_info", "pickle", "storages", "tensors"):
            archive.addfile(tarfile.TarInfo(name), io.BytesIO())
    assert not inspect(content(buffer.getvalue())).plain


@pytest.mark.parametrize("data", [b"", b"\x80\x02", b"\x80\x02}", b"garbage", b"\x80\x02X\xff\xff"])
def test_p11_what_is_no_pickle_is_damaged(data):
    with pytest.raises(Damaged):
        first_forbidden(io.BytesIO(data))
    with pytest.raises(OprepError) as refused:
        inspect(content(torch_file(data)))
    assert refused.value.exit_code == ExitCode.MODEL
    assert "trust" not in str(refused.value)


def test_p03_a_pickle_with_bytes_after_its_end_is_refused():
    with pytest.raises(OprepError, match="bytes after its end"):
        inspect(content(torch_file(b"\x80\x02}." + pickle_that_runs(CODE))))


def outcome(data: bytes) -> TorchFile | OprepError:
    try:
        return inspect(content(data))
    except OprepError as error:
        return error


@given(st.data())
def test_p11_flipped_bits_and_cuts_never_end_in_a_traceback(saved, data):
    raw = bytearray(saved[data.draw(st.sampled_from(sorted(saved)))])
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    end = outcome(bytes(raw[: data.draw(st.integers(0, len(raw)))]))
    assert isinstance(end, TorchFile) or end.exit_code == ExitCode.MODEL


@given(st.binary(max_size=60))
def test_p11_any_pickle_is_walked_to_an_end(data):
    for raw in (b"\x80\x02" + data, torch_file(b"\x80\x02" + data + b"."), zipped({}, "a")):
        end = outcome(raw)
        assert isinstance(end, TorchFile) or end.exit_code == ExitCode.MODEL


def test_the_pickle_of_an_archive_is_the_one_that_torch_reads(saved):
    """Torch takes `data.pkl` below the one root, and so does the gate."""
    files = unpacked(saved["state"])
    assert inspect(content(zipped(files, "x"))).plain
    files["data.pkl"] = pickle_that_runs(CODE)
    assert not inspect(content(zipped(files, "x"))).plain
