"""Rule files whose Python code is broken: one message, at the right place, nothing is written."""

from __future__ import annotations

import pytest
from programs_made import archive, write

import oprep
from oprep import ExitCode, OprepError

RULES = """
format = 1
[[op]]
name = "acme::rectify"
{more}python = "ops.py:Rectify"
[[rule]]
replace = "relu(x)"
with = "acme::rectify(x)"
"""
CLASS = """
import os, torch
from oprep import Rp

class Rectify(Rp):
    @staticmethod
    def forward(ctx, x):
        {}
"""
BROKEN = {
    "ends the process when it is imported": (
        "import os\nos._exit(0)", "", ExitCode.RULES, "running the code of `ops.py:Rectify`",
        "ops.py:Rectify",
    ),
    "leaves when it is imported": (
        "import sys\nsys.exit(0)", "", ExitCode.RULES, "`ops.py` does not run", "ops.py:2",
    ),
    "has no forward": (
        "from oprep import Rp\nclass Rectify(Rp):\n    pass", "", ExitCode.RULES,
        "`Rectify` of `ops.py` has no `forward`", "rules.toml:5",
    ),
    "ends the process when it is called": (
        CLASS.format("os._exit(0)"), "", ExitCode.VERIFICATION, "trying the ops of", "relu.pt2",
    ),
    "returns a view": (
        CLASS.format("return x.view_as(x)"), "", ExitCode.VERIFICATION, "a view of one",
        "ops.py:Rectify",
    ),
    "computes something else than the body beside it": (
        CLASS.format("return x.relu()"), 'body = "relu(x) * 1.01"\n', ExitCode.VERIFICATION,
        "computes something else than its body", "relu.pt2, site `relu`",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return archive(tmp_path_factory.mktemp("model"), "relu.pt2", "relu")


@pytest.mark.parametrize("name", sorted(BROKEN))
def test_code_that_is_broken_is_one_message(name, model, tmp_path):
    code, more, exit_code, said, where = BROKEN[name]
    write(tmp_path, "ops.py", code)
    rules = write(tmp_path, "rules.toml", RULES.format(more=more))
    with pytest.raises(OprepError) as caught:
        oprep.convert(model, rules=rules, output=tmp_path / "out.pt2")
    error = caught.value
    assert error.exit_code is exit_code
    assert said in error.message
    assert where in error.where
    assert "oprep_code_" not in str(error)
    assert sorted(item.name for item in tmp_path.iterdir()) == ["ops.py", "rules.toml"]


def test_a_body_that_agrees_with_the_code_beside_it_is_accepted(model, tmp_path):
    write(tmp_path, "ops.py", CLASS.format("return x.relu()"))
    more = 'body = "where(x > 0, x, 0)"\n'
    rules = write(tmp_path, "rules.toml", RULES.format(more=more))
    assert oprep.convert(model, rules=rules, output=tmp_path / "out.pt2").status == "verified"
