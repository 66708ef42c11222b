"""Fake tensors through a whole program against what its graph declares; and its JSON."""

from __future__ import annotations

import pytest
from programs_matching import of
from programs_rewriting import assert_same, captured, reloaded, rewritten, rule
from torch_child import in_child


@in_child()
def test_a_rewritten_program_declares_what_its_ops_give():
    import torch
    import torch.nn.functional as F

    from oprep.converters.programs.propagate import propagate_all

    def forward(m, x):
        y = torch.cond(x.sum() > 0, lambda x: F.gelu(x), lambda x: x * 2, (x,))
        return F.gelu(y) + torch.cat([x, F.gelu(x)])[: x.shape[0]]

    batch = torch.export.Dim("batch", min=1, max=32)
    exported = captured(of(forward), (torch.ones(3, 4),), dynamic_shapes=(({0: batch},),))
    assert propagate_all(exported) == []
    made = rewritten(exported, rule("gelu(x)", "rewriting::gelu(x)"), 3)
    assert propagate_all(made) == []
    assert propagate_all(reloaded(made)) == []


@in_child()
def test_an_op_of_torch_may_ask_whether_a_free_size_is_one():
    import torch

    from oprep.converters.programs.propagate import propagate_all

    lstm = torch.nn.LSTM(8, 8, batch_first=True)
    block = of(lambda m, x: torch.relu(m.lstm(x)[0]))
    block.lstm = lstm
    batch = torch.export.Dim("batch", min=1, max=8)
    exported = captured(block, (torch.ones(2, 7, 8),), dynamic_shapes=(({0: batch},),))
    with torch.backends.mkldnn.flags(enabled=False):
        assert propagate_all(exported) == []
    relu = next(node for node in exported.graph.nodes if node.name == "relu")
    relu.meta["val"] = relu.meta["val"].new_empty(3, 7, 8)
    with torch.backends.mkldnn.flags(enabled=False):
        assert "relu" in [item.node for item in propagate_all(exported)]


@in_child()
@pytest.mark.parametrize(
    ("change", "declared", "found"),
    [
        ("x.to(torch.float64)", "float64[3, 4]", "float32[3, 4]"),
        ("x[:2]", "float32[2, 4]", "float32[3, 4]"),
        ("x.t().contiguous().t()", "strides [1, 3]", "strides [4, 1]"),
    ],
)
def test_m21_m22_a_stale_declaration_is_found_once(change, declared, found):
    import torch

    from oprep.converters.programs.propagate import propagate_all

    exported = captured(of(lambda m, x: torch.tanh(x) + 1), (torch.ones(3, 4),))
    node = next(node for node in exported.graph.nodes if node.name == "tanh")
    value = node.meta["val"]
    with value.fake_mode:
        node.meta["val"] = eval(change, {"torch": torch, "x": value})
    differences = propagate_all(exported)
    assert differences[0].node == "tanh"
    assert declared in differences[0].declared
    assert found in differences[0].found


@in_child()
def test_the_json_of_a_rewritten_program_is_what_torch_saves_and_holds_no_weight():
    import io
    import zipfile

    import torch

    from oprep.converters.programs.serial import model_json

    model = torch.nn.Sequential(torch.nn.Linear(50, 50), torch.nn.GELU())
    made = rewritten(
        captured(model, (torch.ones(2, 50),)), rule("gelu(x)", "rewriting::gelu(x)"), 1
    )
    held = io.BytesIO()
    torch.export.save(made, held)
    with zipfile.ZipFile(held) as archive:
        [name] = [name for name in archive.namelist() if name.endswith("models/model.json")]
        assert archive.read(name) == model_json(made)
    assert b"stack_trace" in model_json(made)
    assert b"stack_trace" not in model_json(made, traces=False)


@in_child()
def test_sizes_that_only_the_data_tells_stay_what_they_were():
    import torch

    exported = captured(of(lambda m, x: torch.nonzero(torch.relu(x)) + 1), (torch.ones(3),))
    made = rewritten(exported, rule("aten::nonzero(x)", "aten::nonzero(x * 1)"), 1)
    old, new = (
        next(node for node in program.graph.nodes if node.name == "nonzero")
        for program in (exported, made)
    )
    assert new.meta["val"] is old.meta["val"]
    assert new.meta["unbacked_bindings"] == old.meta["unbacked_bindings"]
    assert_same(exported, reloaded(made), torch.tensor([1.0, 0, 2]))
