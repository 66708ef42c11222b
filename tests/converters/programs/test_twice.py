"""A converted program is a program: it is converted again, and keeps the ops it already has."""

from __future__ import annotations

from programs_made import GELU, archive, write
from torch_child import call

import oprep

AGAIN = """
format = 1
[[rule]]
replace = "linear(x, w, b)"
with = "aten::addmm(b, x, transpose(w, 0, 1))"
"""


def test_a_second_conversion_keeps_the_ops_of_the_first(tmp_path):
    model, rules = archive(tmp_path), write(tmp_path, "gelu.toml", GELU)
    oprep.convert(model, rules=rules, output=tmp_path / "once.pt2", verify=False)
    again = write(tmp_path, "again.toml", AGAIN)
    report = oprep.convert(tmp_path / "once.pt2", rules=again, output=tmp_path / "twice.pt2")
    assert report.status == "verified"
    assert len(report.rules[0].sites) == 2
    table = {row.op: row.count for row in oprep.list_ops(tmp_path / "twice.pt2").ops}
    assert table["acme::gelu"] == 1
    assert "aten::linear" not in table
    data = (tmp_path / "twice.pt2").read_bytes()
    call(__file__, "loads", {"data": data.hex()}, 120, fresh=True)
    assert oprep.verify(model, tmp_path / "twice.pt2").status == "verified"


def loads(data):
    import tempfile
    from pathlib import Path

    import torch

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "twice.pt2"
        file.write_bytes(bytes.fromhex(data))
        assert oprep.load(file).module()(torch.ones(2, 8)).shape == (2, 4)
