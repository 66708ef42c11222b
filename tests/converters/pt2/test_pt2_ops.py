"""Ops, inputs and outputs of a program, read from its archive without torch."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from corpus.pt2_models import NAMES
from torch_child import call

from oprep.converters.pt2.gate import read_pt2
from oprep.converters.pt2.ops import Port, custom_ops, graphs, inputs, op_table, outputs, record
from oprep.converters.reading import Content


@pytest.fixture
def programs(archives):
    return {
        name: read_pt2(Content(Path(f"{name}.pt2"), data, "")) for name, data in archives.items()
    }


def test_ops_are_counted_with_dtypes_and_graphs(programs):
    table = op_table(programs["rich"])
    assert table["aten::gelu"] == (1, ["float32"], ["main"])
    assert table["aten::relu"] == (2, ["float32"], ["false_graph_0", "submod_3"])
    assert table["aten::matmul"] == (1, ["bfloat16"], ["submod_1"])
    assert table["aten::gt.Scalar"] == (1, ["bool"], ["main"])
    assert table["_operator::gt"] == (1, [], ["main"])
    assert table["higher_order::cond"] == (1, ["float32"], ["main"])
    assert list(table) == sorted(table)


def test_dtypes_of_several_results_and_of_list_results_are_those_of_the_first(programs):
    table = op_table(programs["lstm"])
    assert table["aten::lstm.input"] == (1, ["float32"], ["main"])
    assert table["aten::chunk"] == (1, ["float32"], ["main"])
    assert table["aten::embedding"] == (1, ["float32"], ["main"])
    assert op_table(programs["half"])["aten::mul.Tensor"][1] == ["complex64"]


@pytest.mark.parametrize("name", NAMES)
def test_the_table_counts_what_torch_counts(name, programs):
    counted = call(str(Path(__file__).with_name("counting.py")), "count", {"name": name}, 120)
    ours = Counter(node["target"] for _, graph in graphs(programs[name].program)
                   for node in graph["nodes"])  # fmt: skip
    assert dict(ours) == counted


def test_graphs_within_graphs_have_the_names_of_both():
    inner = {"nodes": [{"inputs": []}]}
    node = {"inputs": [{"arg": {"as_graph": {"name": "body", "graph": inner}}}]}
    outer = {"nodes": [{"inputs": [{"arg": {"as_string_to_argument": {
        "f": {"as_graph": {"name": "branch", "graph": {"nodes": [node]}}}}}}]}]}  # fmt: skip
    names = [name for name, _ in graphs({"graph_module": {"graph": outer}})]
    assert names == ["main", "branch", "branch/body"]


def test_custom_ops_are_named(programs):
    assert custom_ops(programs["custom"]) == ("pt2_tests::fast",)
    for name in set(NAMES) - {"custom"}:
        assert custom_ops(programs[name]) == ()


def test_inputs_and_outputs_are_listed_in_the_order_of_the_call(programs):
    rich = programs["rich"]
    assert inputs(rich) == (
        Port("x", "float32", ("s77", 4)),
        Port("y_k_0", "float32", (3,)),
        Port("y_k_1", "float32", (1,)),
        Port("scale", constant=True),
        Port("flag", constant=True),
    )
    assert [(port.dtype, port.shape) for port in outputs(rich)] == [
        ("float32", ("s77", 4)), ("float32", ("s77", 4)), ("bfloat16", ("s77", "s77")),
        ("", ()), ("", ()), ("float32", (2, 4)), ("float32", ("s77", 4)),
    ]  # fmt: skip
    assert [port.constant for port in outputs(rich)] == [False] * 3 + [True] * 2 + [False] * 2


def test_mutated_buffers_are_no_outputs(programs):
    assert [port.dtype for port in outputs(programs["decomposed"])] == ["float32"]


def test_the_record_names_format_hash_and_versions(programs):
    import hashlib

    plain = programs["plain"]
    found = record(plain)
    assert (found.name, found.format, found.nodes) == ("plain.pt2", "pt2", 3)
    assert found.sha256 == hashlib.sha256(plain.source.data).hexdigest()
    assert found.ir_version == 8
    assert dict(found.opsets).keys() == {"aten"}


def test_extra_files_are_listed_and_read(archives):
    from corpus.hostile_pt2 import unpacked, zipped

    files = {**unpacked(archives["plain"]), "extra/oprep.json": b"{}", "extra/a/b.txt": b"x"}
    pt2 = read_pt2(Content(Path("m.pt2"), zipped(files), ""))
    assert pt2.extra_files == ("a/b.txt", "oprep.json")
    assert pt2.read("extra/oprep.json") == b"{}"


def test_no_framework_is_loaded_to_read_an_archive(archives, tmp_path):
    path = tmp_path / "m.pt2"
    path.write_bytes(archives["rich"])
    code = (
        "import sys; from pathlib import Path; from oprep.converters.files import holding\n"
        "from oprep.converters.pt2.gate import read_pt2\n"
        "from oprep.converters.pt2.ops import op_table\n"
        f"with holding(Path({str(path)!r})) as file: assert op_table(read_pt2(file))\n"
        "assert not {'torch', 'onnx', 'numpy'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-500:]
