"""What PyTorch gives in eager mode against what ONNX Runtime makes of an export."""

from __future__ import annotations

from torch_child import in_child


def exported_to_onnx(factor=1.0):
    """Give a program with nested and constant outputs, and an ONNX model of it."""
    import torch
    from proven import program

    from oprep.converters.programs.onnx_export import export_onnx

    class Net(torch.nn.Module):
        def __init__(self, factor=1.0):
            super().__init__()
            torch.manual_seed(0)
            self.linear = torch.nn.Linear(4, 3)
            self.factor = factor

        def forward(self, x, mask):
            y = torch.nn.functional.gelu(self.linear(x)) * self.factor
            return {"y": y, "none": None, "more": [torch.where(mask, y, 0), mask.sum()]}

    batch = torch.export.Dim("batch", min=2, max=64)
    args = (torch.randn(5, 4), torch.ones(5, 3, dtype=torch.bool))
    dynamic = {"x": {0: batch}, "mask": {0: batch}}
    return program(Net(), args, dynamic), export_onnx(program(Net(factor), args, dynamic).exported)


def proof_of(found, export):
    from proven import HELD

    from oprep.converters.program_proof import ProofOptions, outputs_against_onnx
    from oprep.converters.program_sides import InProcess, Opening
    from oprep.converters.runs import Loadable

    return outputs_against_onnx(
        Opening(HELD, {"held": found}),
        Loadable(export.proto.SerializeToString()),
        [item.name for item in export.proto.graph.input],
        export.outputs,
        ProofOptions(start_original=InProcess),
    )


@in_child(240)
def test_an_export_is_compared_with_the_eager_program_at_several_sizes():
    from proven import all_pass, by_check, told

    found, export = exported_to_onnx()
    proof = proof_of(found, export)
    assert all_pass(proof), told(proof)
    assert by_check(proof, "outputs_close").keys() == {"y", "more.0", "more.1"}
    assert len({item.shapes[0][2] for item in proof.inputs}) >= 3
    found, export = exported_to_onnx(1.01)
    checks = by_check(proof_of(found, export), "outputs_close")
    assert {name: str(item.verdict) for name, item in checks.items()} == {
        "y": "fail",
        "more.0": "fail",
        "more.1": "pass",
    }
