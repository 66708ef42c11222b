"""`--bundle`: the code of an artifact lies beside it, found by its hash, run only if trusted."""

from __future__ import annotations

import json

import pytest
from programs_made import SEVEN, archive, write
from torch_child import call

import oprep
from oprep import ExitCode, OprepError
from oprep.converters.bundles import bundled_name
from oprep.converters.code_files import CodeFile
from oprep.converters.program_code import BESIDE, Needed, code_beside, needed_code

RULES = """
format = 1
[[op]]
name = "acme::relu7"
python = "ops.py:Relu7"
[[op]]
name = "acme::unused"
python = "unused.py:Relu7"
[[rule]]
name = "relu"
replace = "relu(x)"
with = "acme::relu7(x)"
gradient = "own"
"""


def test_an_artifact_with_its_bundle_is_loaded_verified_and_converted_by_hash(tmp_path):
    model, rules = archive(tmp_path, kind="relu"), write(tmp_path, "own.toml", RULES)
    write(tmp_path, "ops.py", SEVEN)
    write(tmp_path, "unused.py", SEVEN + "\n# another file\n")
    out = tmp_path / "out.pt2"
    report = oprep.convert(model, rules=rules, output=out, bundle=True, verify=False)
    (place,) = report.artifact.libraries
    assert [item.name for item in report.artifact.side_files] == [place]
    assert (tmp_path / place).read_text() == SEVEN
    assert len(list((tmp_path / "out.pt2.oplib").iterdir())) == 1
    subject = json.loads((tmp_path / "out.pt2.oprep.json").read_text())["subject"]
    assert [item["name"] for item in subject] == ["out.pt2", place]
    for file in ("own.toml", "ops.py", "unused.py"):
        (tmp_path / file).unlink()
    files = {name: (tmp_path / name).read_bytes().hex() for name in ("out.pt2", place)}
    call(__file__, "loads_only_where_trusted", {"files": files}, 120, fresh=True)
    with pytest.raises(OprepError) as caught:
        oprep.verify(model, out)
    assert caught.value.exit_code is ExitCode.UNTRUSTED
    compared = oprep.verify(model, out, trust_model=True, provenance=True)
    assert compared.status == "verified"
    (tmp_path / place).write_text(SEVEN + "#")
    for trusted, code in ((True, ExitCode.MODEL), (False, ExitCode.UNTRUSTED)):
        with pytest.raises(OprepError) as caught:
            oprep.verify(model, out, trust_model=trusted)
        assert caught.value.exit_code is code


def loads_only_where_trusted(files):
    import tempfile
    from pathlib import Path

    import torch

    with tempfile.TemporaryDirectory() as folder:
        for name, data in files.items():
            (Path(folder) / name).parent.mkdir(exist_ok=True)
            (Path(folder) / name).write_bytes(bytes.fromhex(data))
        path = Path(folder) / "out.pt2"
        with pytest.raises(OprepError) as caught:
            oprep.load(path)
        assert caught.value.exit_code is ExitCode.UNTRUSTED
        module = oprep.load(path, trust_model=True).module()
    weight = dict(module.named_parameters())["a.weight"]
    module(torch.ones(2, 8)).sum().backward()
    assert set(weight.grad.unique().tolist()) <= {0.0, 14.0}


def test_a_bundle_has_a_place_beside_a_written_program_only(tmp_path):
    model, rules = tmp_path / "m.py", tmp_path / "r.toml"
    model.write_text("raise AssertionError('nothing of it may run')")
    words = {"rules": rules, "bundle": True}
    for more, said in (
        ({}, "none was named"),
        ({"output": tmp_path / "o.onnx"}, "does not apply to an ONNX output"),
    ):
        with pytest.raises(OprepError) as caught:
            oprep.convert(f"{model}:build", **words, **more)
        assert caught.value.exit_code is ExitCode.USAGE
        assert said in caught.value.message


NEEDED = Needed("code/ops.py", "ab" * 32, "acme::a")


def test_code_that_is_at_hand_is_not_looked_for(tmp_path):
    at_hand = [CodeFile("rules.toml", "ops.py", b"", NEEDED.sha256)]
    assert code_beside(tmp_path / "m.pt2", [NEEDED], at_hand, trusted=False) == []


@pytest.mark.parametrize("trusted", [True, False])
def test_code_that_lies_nowhere_is_named_with_its_hash(trusted, tmp_path):
    with pytest.raises(OprepError) as caught:
        code_beside(tmp_path / "m.pt2", [NEEDED], [], trusted=trusted)
    assert caught.value.exit_code is ExitCode.MODEL
    assert "`code/ops.py` with sha256 abababababababab" in caught.value.notes[0]


def test_code_beside_an_archive_is_taken_under_the_name_that_its_hash_gives(tmp_path):
    import hashlib

    data = b"import torch\n"
    needed = Needed("ops.py", hashlib.sha256(data).hexdigest(), "acme::a")
    place = tmp_path / "m.pt2.oplib" / bundled_name(needed.file, needed.sha256)
    place.parent.mkdir()
    place.write_bytes(data)
    (found,) = code_beside(tmp_path / "m.pt2", [needed], [], trusted=True)
    assert (found.opset, found.data, found.sha256) == (BESIDE, data, needed.sha256)


@pytest.mark.parametrize(
    "text", [b"", b"{", b"[]", b'{"ops": 3}', b'{"ops": [{"kind": "python"}]}']
)
def test_odd_definitions_need_no_code_and_are_left_to_the_child_to_refuse(text):
    assert needed_code(text) == []
