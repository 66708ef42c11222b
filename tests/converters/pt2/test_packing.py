"""Archives that oprep writes: the same bytes for the same content, read by torch, streamed."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from corpus.hostile_pt2 import MODEL, WEIGHTS, graph, unpacked, zipped
from corpus.pt2_models import NAMES
from torch_child import TESTS, call

from oprep.converters.files import Output, holding
from oprep.converters.pt2.gate import Pt2, read_pt2
from oprep.converters.pt2.ops import graphs, op_table
from oprep.converters.pt2.packing import Part, packed, repack
from oprep.converters.pt2.zipped import entries_of
from oprep.converters.reading import Content, Readable
from oprep.opsets.errors import ExitCode, OprepError

FILE = str(Path(__file__).with_name("loading.py"))
EXTRA = {"oprep.json": b'{"a": 1}'}


def gated(data: bytes) -> Pt2:
    return read_pt2(Content(Path("m.pt2"), data, ""))


def written(pt2: Pt2, **options) -> bytes:
    made = repack(pt2, **options)
    data = b"".join(made.chunks())
    assert len(data) == made.size
    return data


def array(data: bytes) -> np.ndarray:
    return np.frombuffer(data, np.uint8)


def test_a_fresh_process_loads_what_was_written_and_computes_the_same(archives):
    pairs = {
        name: [array(data), array(written(gated(data), extra=EXTRA))]
        for name, data in archives.items()
    }
    assert call(FILE, "compare", {"pairs": pairs}, 120, fresh=True) == {name: [] for name in NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_what_was_written_passes_the_gate_and_is_written_the_same_again(name, archives):
    before = gated(archives[name])
    data = written(before, extra=EXTRA)
    after = gated(data)
    assert after.code == ()
    assert op_table(after) == op_table(before)
    assert after.extra_files == ("oprep.json",)
    assert written(after) == data
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert archive.testzip() is None


def test_p29_names_order_and_packing_of_the_source_do_not_show(archives):
    files = unpacked(archives["rich"])
    turned = dict(reversed(files.items()))
    turned[".data/serialization_id"] = b"7" * 40
    made = {
        written(gated(zipped(source, root, method)))
        for source in (files, turned)
        for root in ("a", "some name")
        for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
    }
    assert len(made) == 1
    assert made == {written(gated(archives["rich"]))}


def test_other_content_has_another_identity(archives):
    one = gated(written(gated(archives["plain"])))
    other = gated(written(gated(archives["plain"]), extra={"x": b""}))
    identity = ".data/serialization_id"
    assert len(one.read(identity)) == 40
    assert one.read(identity).isdigit()
    assert one.read(identity) != other.read(identity)


SCRIPT = f"""
import sys
import torch
sys.path[:0] = {[str(TESTS / "corpus")]!r}
import pt2_models
torch.set_num_threads(2)
for name in sys.argv[1:]:
    torch.manual_seed(0)
    torch.export.save(pt2_models.BUILDERS[name](), name + " again.pt2")
"""


def test_p29_a_run_elsewhere_gives_the_same_bytes(archives, tmp_path):
    """Other process, hash seed, folder, file name, time zone and number of threads."""
    names = ("rich", "decomposed", "strict")
    env = {**os.environ, "PYTHONHASHSEED": "7", "TZ": "Asia/Tokyo"}
    words = [sys.executable, "-c", SCRIPT, *names]
    subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, check=True)
    for name in names:
        raw = (tmp_path / f"{name} again.pt2").read_bytes()
        assert raw != archives[name]
        assert written(gated(raw)) == written(gated(archives[name]))


def test_stack_traces_and_addresses_go_from_all_graphs(archives):
    before, after = gated(archives["rich"]), gated(written(gated(archives["rich"])))
    kept = gated(written(before, keep_traces=True))

    def keys(pt2: Pt2) -> set[str]:
        nodes = [node for _, inner in graphs(pt2.program) for node in inner["nodes"]]
        return {key for node in nodes for key in node["metadata"]}

    assert "stack_trace" in keys(before)
    assert keys(after) == keys(before) - {"stack_trace", "from_node"}
    assert keys(kept) == keys(before) - {"from_node"}
    assert b"/corpus/" not in written(before)
    assert "from_node" in keys(gated(archives["decomposed"]))


def test_the_source_stays_as_it_is(archives):
    pt2 = gated(archives["rich"])
    before = json.dumps(pt2.program)
    written(pt2)
    assert json.dumps(pt2.program) == before


def test_entries_are_replaced_and_added(archives):
    pt2 = gated(archives["plain"])
    program = json.loads(json.dumps(pt2.program))
    graph(program)["nodes"][1]["target"] = "torch.ops.aten.relu.default"
    graph(program)["nodes"][1]["inputs"] = graph(program)["nodes"][1]["inputs"][:1]
    replaced = {MODEL: json.dumps(program).encode(), "data/weights/weight_0": bytes(128)}
    after = gated(written(pt2, replaced=replaced))
    assert op_table(after).keys() == {"aten::linear", "aten::relu"}
    assert after.read("data/weights/weight_0") == bytes(128)
    assert after.read("data/weights/weight_1") == pt2.read("data/weights/weight_1")
    assert after.read(WEIGHTS) == pt2.read(WEIGHTS)


@pytest.mark.parametrize("data", [b"{", b"[]", b'{"graph_module": 1}', b"[" * 1000])
def test_what_is_no_program_is_not_written(data, archives):
    with pytest.raises(OprepError) as refused:
        repack(gated(archives["plain"]), {MODEL: data})
    assert refused.value.exit_code == ExitCode.MODEL


def test_data_begin_at_multiples_of_64_and_nothing_is_dated(archives):
    data = written(gated(archives["rich"]))
    assert all(entry.start % 64 == 0 for entry in gated(data).entries)
    assert [entry.name for entry in gated(data).entries][-1] == ".data/serialization_id"
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        infos = archive.infolist()
    assert {info.date_time for info in infos} == {(1980, 0, 0, 0, 0, 0)}
    assert [info.filename for info in infos[:-1]] == sorted(info.filename for info in infos[:-1])


def test_p12_a_source_that_changes_while_it_is_streamed_is_refused(archives, tmp_path):
    path = tmp_path / "m.pt2"
    path.write_bytes(archives["plain"])
    with holding(path) as file:
        pt2 = read_pt2(file)
        made = repack(pt2)
        entry = pt2.by_name["data/weights/weight_0"]
        with path.open("r+b") as other:
            other.seek(entry.start)
            other.write(b"\xff" * 8)
        with Output(tmp_path / "out.pt2") as output, pytest.raises(OprepError) as refused:
            output.write(made.chunks(), size=made.size)
    assert refused.value.exit_code == ExitCode.MODEL
    assert os.listdir(tmp_path) == ["m.pt2"]


LARGE = """
import sys
from pathlib import Path
from oprep.converters.files import Output, holding
from oprep.converters.pt2.gate import read_pt2
from oprep.converters.pt2.packing import repack
with holding(Path(sys.argv[1])) as file, Output(Path(sys.argv[2])) as output:
    made = repack(read_pt2(file))
    output.write(made.chunks(), size=made.size)
    output.commit()
# not ru_maxrss: that counts the process which started this one
status = Path("/proc/self/status").read_text()
sys.stdout.write(status.partition("VmHWM:")[2].split()[0])
"""


def test_p32_a_large_archive_is_repacked_in_little_memory(archives, tmp_path):
    size = 150 << 20
    source, target = tmp_path / "large.pt2", tmp_path / "out.pt2"
    large = packed([*parts_of(gated(archives["plain"])), zeros("data/weights/weight_9", size)])
    with source.open("wb") as file:
        file.writelines(large.chunks())
    words = [sys.executable, "-c", LARGE, str(source), str(target)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    with zipfile.ZipFile(target) as archive:
        assert archive.getinfo("archive/data/weights/weight_9").file_size == size
    assert int(done.stdout) < (100 << 10)


def parts_of(pt2: Pt2) -> list[Part]:
    return [
        Part(e.name, e.size, e.crc, lambda e=e: [pt2.read(e.name)])
        for e in pt2.entries
        if not e.name.startswith("models/")
    ] + [held(MODEL, json.dumps(pt2.program).encode())]


def held(name: str, data: bytes) -> Part:
    import zlib

    return Part(name, len(data), zlib.crc32(data), lambda: [data])


def zeros(name: str, size: int) -> Part:
    import zlib

    block, crc = bytes(1 << 20), 0
    for _ in range(size >> 20):
        crc = zlib.crc32(block, crc)
    return Part(name, size, crc, lambda: (block for _ in range(size >> 20)))


class Hole(bytes):
    """Stands for bytes that a sparse file does not hold."""

    size = 0


def hole(size: int) -> Hole:
    made = Hole()
    made.size = size
    return made


@pytest.mark.parametrize("size", [(1 << 32) - 2, (1 << 32) - 1, 1 << 32, 5 << 30])
def test_an_archive_over_four_gigabytes_is_read_by_every_reader(size, tmp_path):
    large = packed([Part("a", size, 0, lambda: [hole(size)]), held("b", b"after"), held("c", b"")])
    path, at = tmp_path / "large.zip", 0
    with path.open("wb") as file:
        for chunk in large.chunks():
            if isinstance(chunk, Hole):
                at += chunk.size
            else:
                file.seek(at)
                file.write(chunk)
                at += len(chunk)
    assert at == large.size == path.stat().st_size
    with holding(path) as file:
        root, entries = entries_of(file)
    assert [(entry.name, entry.size) for entry in entries[:3]] == [("a", size), ("b", 5), ("c", 0)]
    with zipfile.ZipFile(path) as archive:
        assert [info.file_size for info in archive.infolist()[:3]] == [size, 5, 0]
        assert archive.read(f"{root}/b") == b"after"


def test_a_source_can_be_read_in_parts_from_memory_and_from_a_file(archives, tmp_path):
    path = tmp_path / "m.pt2"
    path.write_bytes(archives["relu"])
    with holding(path) as file:
        for source in (file, Content(path, archives["relu"], "")):
            assert parts(source) == archives["relu"]
            with pytest.raises(OprepError, match="shorter than expected"):
                source.read_at(source.size - 1, 2)


def parts(source: Readable) -> bytes:
    return b"".join(
        source.read_at(at, min(100, source.size - at)) for at in range(0, source.size, 100)
    )
