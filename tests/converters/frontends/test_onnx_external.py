"""External data: read from the model's folder alone, as far as its bytes go, and moved whole."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import ModelProto, TensorProto, helper, parser

from oprep.converters.files import read
from oprep.converters.frontends.onnx_external import (
    external_files,
    relocate,
    small_tensor,
    tensors,
)
from oprep.converters.frontends.onnx_lint import lint
from oprep.opsets.errors import ExitCode, OprepError

pytestmark = pytest.mark.timeout(20)
DATA = bytes(range(64))


def external(name: str = "w", dims: tuple[int, ...] = (2,), **entries: object) -> TensorProto:
    """Make a float tensor whose data lies elsewhere."""
    tensor = TensorProto(name=name, data_type=1, dims=dims, data_location=TensorProto.EXTERNAL)
    for key, value in {"location": "data.bin", **entries}.items():
        tensor.external_data.add(key=key, value=str(value))
    return tensor


PLAIN = """<ir_version: 8, opset_import: ["" : 17, "f" : 1]>
main (float[2] x, bool c) => (float[2] y) { [p] k = Constant <value = float[2] {1, 2}> ()
y = Add (x, k) }"""


def plain() -> ModelProto:
    return parser.parse_model(PLAIN)


def in_initializer(tensor: TensorProto) -> ModelProto:
    proto = plain()
    proto.graph.initializer.append(tensor)
    return proto


def in_attribute(tensor: TensorProto) -> ModelProto:
    proto = plain()
    proto.graph.node[0].attribute[0].t.CopyFrom(tensor)
    return proto


def in_branch(tensor: TensorProto) -> ModelProto:
    proto = plain()
    branch = helper.make_graph([], "t", [], [])
    branch.initializer.append(tensor)
    branch.output.add(name=tensor.name)
    proto.graph.node.append(
        helper.make_node("If", ["c"], ["o"], "i", then_branch=branch, else_branch=branch)
    )
    return proto


def in_function(tensor: TensorProto) -> ModelProto:
    proto = plain()
    node = helper.make_node("Constant", [], ["b"], value=tensor)
    opsets = [helper.make_opsetid("", 17)]
    proto.functions.append(helper.make_function("f", "g", [], ["b"], [node], opsets))
    return proto


def in_sparse(tensor: TensorProto) -> ModelProto:
    proto = plain()
    indices = TensorProto(data_type=7, dims=[2], int64_data=[0, 1])
    sparse = onnx.SparseTensorProto(values=tensor, indices=indices, dims=[8])
    proto.graph.sparse_initializer.append(sparse)
    return proto


def in_hidden_graph(tensor: TensorProto) -> ModelProto:
    """Put it into a graph in an attribute that claims to be an integer."""
    proto = plain()
    attribute = proto.graph.node[0].attribute.add(name="n", type=onnx.AttributeProto.INT, i=3)
    attribute.g.initializer.append(tensor)
    return proto


def in_training(tensor: TensorProto) -> ModelProto:
    proto = plain()
    proto.training_info.add().algorithm.initializer.append(tensor)
    return proto


PLACES: list[Callable[[TensorProto], ModelProto]] = [
    *(in_initializer, in_attribute, in_branch, in_function, in_sparse),
    *(in_hidden_graph, in_training),
]
everywhere = pytest.mark.parametrize("place", PLACES)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Give a folder with a data file, below one with a secret."""
    (tmp_path / "secret.bin").write_bytes(DATA)
    home = tmp_path / "model"
    home.mkdir()
    (home / "data.bin").write_bytes(DATA)
    return home


def refusal(proto: ModelProto, folder: Path, root: Path | None = None) -> OprepError:
    with pytest.raises(OprepError) as refused:
        external_files(proto, folder, root)
    assert refused.value.exit_code == ExitCode.MODEL
    assert "\n" not in refused.value.message
    return refused.value


@everywhere
def test_a_sound_file_passes_wherever_the_tensor_lies(
    place: Callable[[TensorProto], ModelProto], folder: Path
) -> None:
    proto = place(external(offset=8, length=8))
    lint(proto, "m.onnx")
    (found,) = external_files(proto, folder)
    assert found.location == "data.bin"
    assert found.path == folder / "data.bin"
    assert found.size == 64
    assert b"".join(found.chunks()) == DATA
    assert external_files(plain(), folder) == ()


def test_offset_and_length_may_be_left_out(folder: Path) -> None:
    assert len(external_files(in_initializer(external()), folder)) == 1
    assert len(external_files(in_initializer(external(checksum="00")), folder)) == 1


def test_the_files_are_sorted_and_named_once(folder: Path) -> None:
    (folder / "sub").mkdir()
    shutil.copy(folder / "data.bin", folder / "sub" / "a.bin")
    proto = plain()
    for number, location in enumerate(["sub/a.bin", "data.bin", "data.bin"]):
        proto.graph.initializer.append(external(f"w{number}", location=location))
    assert [file.location for file in external_files(proto, folder)] == ["data.bin", "sub/a.bin"]


LEADING_OUT = [
    *("../secret.bin", "sub/../../secret.bin", "/etc/passwd", "//etc/passwd", ".."),
    *("..\\secret.bin", "C:/secret.bin", "a\0b", "sub/..", "data.bin/.."),
]


@everywhere
@pytest.mark.parametrize("location", LEADING_OUT)
def test_p07_a_location_that_leads_out_is_refused(
    place: Callable[[TensorProto], ModelProto], location: str, folder: Path
) -> None:
    error = refusal(place(external(location=location)), folder)
    assert "leads out of the model's folder" in error.message
    assert "`w`" in error.notes[0]


@pytest.mark.parametrize("name", ["*/_ORT_MEM_ADDR_/*", "*/_ORT_MEM_LE_ADDR_/*"])
def test_p07_an_address_in_memory_is_refused(name: str, folder: Path) -> None:
    target = folder / name
    target.parent.mkdir(parents=True)
    target.write_bytes(DATA)
    error = refusal(in_initializer(external(location=name)), folder)
    assert "address in memory" in error.message


@everywhere
def test_p07_missing(place: Callable[[TensorProto], ModelProto], folder: Path) -> None:
    error = refusal(place(external(location="gone.bin")), folder)
    assert "`gone.bin` is missing" in error.message


def test_p07_symlink(folder: Path) -> None:
    (folder / "link.bin").symlink_to("../secret.bin")
    (folder / "up").symlink_to("..")
    for location in ("link.bin", "up/secret.bin"):
        error = refusal(in_initializer(external(location=location)), folder)
        assert "symbolic link out" in error.message
        assert "--external-data-root" in error.help


def test_a_symlink_that_stays_inside_passes(folder: Path) -> None:
    (folder / "link.bin").symlink_to("data.bin")
    (found,) = external_files(in_initializer(external(location="link.bin")), folder)
    assert found.path == folder / "data.bin"
    assert b"".join(found.chunks()) == DATA


def test_a_root_widens_what_links_may_lead_to(folder: Path, tmp_path: Path) -> None:
    """Model hubs keep blobs in one folder and snapshots of links in another."""
    (folder / "link.bin").symlink_to("../secret.bin")
    proto = in_initializer(external(location="link.bin"))
    (found,) = external_files(proto, folder, tmp_path)
    assert found.path == tmp_path / "secret.bin"
    refusal(proto, folder, folder)
    outside = tmp_path / "root"
    outside.mkdir()
    refusal(proto, folder, outside)
    refusal(in_initializer(external(location="../secret.bin")), folder, tmp_path)


def test_a_folder_that_is_a_link_itself_is_its_own_root(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "alias").symlink_to("model")
    (found,) = external_files(in_initializer(external()), tmp_path / "alias")
    assert found.path == folder / "data.bin"


@everywhere
def test_p07_hardlink(place: Callable[[TensorProto], ModelProto], folder: Path) -> None:
    os.link(folder.parent / "secret.bin", folder / "hard.bin")
    error = refusal(place(external(location="hard.bin")), folder)
    assert "is a hard link" in error.message
    assert "2 names" in error.notes[0]


@pytest.mark.parametrize("kind", ["a named pipe", "a folder", "a device"])
def test_p07_p10_irregular(kind: str, folder: Path) -> None:
    path = folder / "odd.bin"
    if kind == "a named pipe":
        os.mkfifo(path)
    elif kind == "a folder":
        path.mkdir()
    else:
        try:
            os.mknod(path, 0o20600, os.makedev(1, 5))
        except PermissionError:
            pytest.skip("a device cannot be made here")
    error = refusal(in_initializer(external(location="odd.bin")), folder)
    assert f"is {kind}, not a regular file" in error.message


SIZES = [
    ({"offset": 60, "length": 8}, "60"),
    ({"offset": 64, "length": 8}, "64"),
    ({"length": 4}, "need 8 bytes, its length is 4"),
    ({"length": 12}, "need 8 bytes, its length is 12"),
    ({"length": 0}, "need 8 bytes, its length is 0"),
    ({"offset": 2**64 - 8, "length": 8}, "18446744073709551608"),
    ({"offset": 2**63, "length": 8}, "9223372036854775808"),
    ({"offset": 2**63 - 1, "length": 8}, "the file has 64"),
    ({"offset": "9" * 1000}, "9" * 40),
    ({"offset": "-8"}, "-8"),
    ({"offset": "+8"}, "+8"),
    ({"offset": " 8"}, " 8"),
    ({"offset": "0x8"}, "0x8"),
    ({"offset": "1e1"}, "1e1"),
    ({"offset": "1_0"}, "1_0"),
    ({"offset": "٨"}, "٨"),
    ({"offset": ""}, "``"),
    ({"length": "8.0"}, "8.0"),
]


@everywhere
@pytest.mark.parametrize(("entries", "says"), SIZES)
def test_p07_a_range_must_be_backed_and_needed(
    place: Callable[[TensorProto], ModelProto],
    entries: dict[str, object],
    says: str,
    folder: Path,
) -> None:
    error = refusal(place(external(**entries)), folder)
    assert says in str(error)
    assert len(str(error)) < 2000


def test_p07_every_tensor_of_a_file_is_checked(folder: Path) -> None:
    proto = in_initializer(external("first", length=8))
    proto.graph.initializer.append(external("second", (100,)))
    assert "`second` needs 400 bytes" in refusal(proto, folder).notes[0]


@pytest.mark.parametrize("dims", [(1 << 40,), (1 << 62, 4), (1 << 32, 1 << 32)])
def test_p08_dims_are_multiplied_exactly(dims: tuple[int, ...], folder: Path) -> None:
    assert "bytes" in str(refusal(in_initializer(external(dims=dims)), folder))


def test_p07_keys_are_from_the_list_and_there_once(folder: Path) -> None:
    error = refusal(in_initializer(external(basepath="/etc")), folder)
    assert "unknown key `basepath`" in error.message
    twice = external()
    twice.external_data.add(key="location", value="other.bin")
    assert "a key twice" in refusal(in_initializer(twice), folder).message


def test_p07_data_in_two_places_is_refused(folder: Path) -> None:
    both = external()
    both.raw_data = bytes(8)
    assert "bytes lie in the model too" in refusal(in_initializer(both), folder).message
    unmarked = external()
    unmarked.ClearField("data_location")
    assert "not marked as external" in refusal(in_initializer(unmarked), folder).message
    nowhere = TensorProto(name="w", data_type=1, dims=[2], data_location=TensorProto.EXTERNAL)
    assert "no location" in refusal(in_initializer(nowhere), folder).message


@pytest.mark.parametrize("data_type", [TensorProto.STRING, TensorProto.UNDEFINED, 250])
def test_p07_data_whose_size_is_unknown_is_refused(data_type: int, folder: Path) -> None:
    tensor = external()
    tensor.data_type = data_type
    refusal(in_hidden_graph(tensor), folder)


def test_p12_a_file_swapped_after_the_gate_is_refused(folder: Path) -> None:
    (found,) = external_files(in_initializer(external()), folder)
    os.rename(folder / "data.bin", folder / "old.bin")
    shutil.copy(folder.parent / "secret.bin", folder / "data.bin")
    with pytest.raises(OprepError, match="changed"):
        list(found.chunks())
    (folder / "data.bin").unlink()
    (folder / "data.bin").symlink_to("../secret.bin")
    with pytest.raises(OprepError, match="symbolic link"):
        list(found.chunks())


@everywhere
def test_relocating_changes_locations_alone(place: Callable[[TensorProto], ModelProto]) -> None:
    proto = place(external(offset=8, length=8))
    wanted = place(external(offset=8, length=8, location="0123.data"))
    relocate(proto, {"data.bin": "0123.data", "other": "not this"})
    assert proto.SerializeToString(deterministic=True) == wanted.SerializeToString(
        deterministic=True
    )
    relocate(proto, {"data.bin": "never"})
    assert proto == wanted


def test_locations_can_be_exchanged() -> None:
    proto = in_initializer(external("a", location="1"))
    proto.graph.initializer.append(external("b", location="2"))
    relocate(proto, {"1": "2", "2": "1"})
    assert [tensor.external_data[0].value for tensor in proto.graph.initializer] == ["2", "1"]


def test_single_tensors_are_read(folder: Path) -> None:
    proto = in_initializer(external(offset=8, length=8))
    reader = small_tensor(external_files(proto, folder))
    assert reader(proto.graph.initializer[0]) == DATA[8:16]
    assert reader(external(location="unknown")) is None
    big = external(dims=(1 << 20,))
    with open(folder / "data.bin", "ab") as file:
        file.truncate(1 << 23)
    assert small_tensor(external_files(in_initializer(big), folder))(big) is None


def test_the_sample_with_external_data_passes() -> None:
    folder = Path(__file__).resolve().parents[3] / "sample_models" / "external"
    proto = onnx.ModelProto()
    proto.ParseFromString(read(folder / "model.onnx").data)
    assert external_files(proto, folder)


@given(
    st.lists(
        st.tuples(st.sampled_from(["location", "offset", "length", "x"]), st.text(max_size=30))
    )
)
def test_p07_any_entries_are_refused_or_inside(entries: list[tuple[str, str]]) -> None:
    folder = Path(__file__).resolve().parents[3] / "sample_models" / "external"
    tensor = TensorProto(name="w", data_type=1, dims=[2], data_location=TensorProto.EXTERNAL)
    for key, value in entries:
        tensor.external_data.add(key=key, value=value)
    try:
        found = external_files(in_initializer(tensor), folder)
    except OprepError:
        return
    assert all(file.path.is_relative_to(folder) for file in found)


def test_tensors_are_found_in_every_place() -> None:
    for place in PLACES:
        names = [tensor.name for tensor in tensors(place(external("wanted")))]
        assert "wanted" in names
