"""What an archive says of the ops that it calls is enough to load it, bodies included."""

from __future__ import annotations

from programs_made import archive, write
from torch_child import call

import oprep

NESTED = """
format = 1
[[op]]
name = "nested::inner"
body = "0.5 * x * (1 + erf(x / sqrt(2)))"
[[op]]
name = "nested::outer"
body = "nested::inner(x) + 0"
[[rule]]
replace = "gelu(x)"
with = "nested::outer(x)"
"""


def test_an_op_that_only_a_body_calls_comes_with_the_archive(tmp_path):
    model, rules = archive(tmp_path), write(tmp_path, "nested.toml", NESTED)
    oprep.convert(model, rules=rules, output=tmp_path / "out.pt2", verify=False)
    data = (tmp_path / "out.pt2").read_bytes().hex()
    call(__file__, "loads", {"data": data}, 120, fresh=True)


def loads(data):
    import tempfile
    from pathlib import Path

    import torch

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "out.pt2"
        file.write_bytes(bytes.fromhex(data))
        module = oprep.load(file).module()
    assert module(torch.ones(2, 8)).shape == (2, 4)
