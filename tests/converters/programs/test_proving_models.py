"""Whole models of several kinds and dtypes pass when they are right, and fail when they are off."""

from __future__ import annotations

import pytest
from torch_child import in_child

GELU = '[[op]]\nname = "models::gelu"\nbody = "0.5 * x * (1 + erf(x / sqrt(2)))"\n'


def model(kind):
    """Give a module and its inputs."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    if kind == "encoder":
        layer = nn.TransformerEncoderLayer(16, 4, 32, activation="gelu", batch_first=True)
        encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        table = nn.Sequential(nn.Embedding(50, 16), encoder, nn.Linear(16, 5))
        return table, (torch.randint(0, 50, (3, 7)),)
    if kind == "convolutions":
        parts = [nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.GELU(), nn.MaxPool2d(2), nn.Flatten()]
        image = torch.randn(4, 3, 10, 10)
        net = nn.Sequential(*parts).to(memory_format=torch.channels_last)
        return net, (image.to(memory_format=torch.channels_last),)

    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm = nn.LSTM(6, 8, batch_first=True)

        def forward(self, x):
            made, (hidden, cell) = self.lstm(x)
            return nn.functional.gelu(made), {"hidden": hidden, "cell": cell}

    return Recurrent(), (torch.randn(3, 5, 6),)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("kind", ["encoder", "convolutions", "recurrent"])
@in_child(240)
def test_a_model_that_was_converted_right_passes(kind, training):
    from proven import all_pass, by_check, program, prove, rule, subject, told

    from oprep.converters.programs.program import Example

    module, args = model(kind)
    given = (Example("given", args),)
    rules = GELU + rule("gelu(x)", "models::gelu(x)")
    proof = prove(*subject(program(module.train(training), args), rules, given=given))
    assert all_pass(proof), told(proof)
    assert by_check(proof, "gradients_close")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@in_child(240)
def test_other_dtypes_pass_end_to_end_and_a_tenth_at_the_sites_are_found(dtype):
    import torch
    from proven import all_pass, by_check, program, prove, rule, subject, told, with_sites

    module, args = model("encoder")
    held, artifact = subject(
        program(module.to(getattr(torch, dtype)), args),
        GELU + rule("gelu(x)", "models::gelu(x)"),
    )
    proof = prove(held, artifact)
    assert all_pass(proof), told(proof)

    def wrong(match, values):
        return tuple(item * 1.1 for item in held.sites[0].evaluate(match, values))

    proof = prove(with_sites(held, wrong), artifact, grad=False)
    assert all(c.verdict == "fail" for c in by_check(proof, "sites_close").values()), told(proof)


@in_child(240)
def test_an_artifact_that_is_off_by_five_percent_fails_at_the_outputs_in_bfloat16():
    import torch
    from proven import by_check, program, prove, rule, subject

    module, args = model("recurrent")
    module = module.bfloat16()
    args = tuple(item.bfloat16() for item in args)
    held, _ = subject(program(module, args), GELU + rule("gelu(x)", "models::gelu(x)"))

    class Off(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm = module.lstm

        def forward(self, x):
            made, (hidden, cell) = self.lstm(x)
            off = torch.nn.functional.gelu(made) * 1.05
            return off, {"hidden": hidden, "cell": cell}

    proof = prove(held, torch.export.export(Off(), args), grad=False)
    outputs = {name: str(c.verdict) for name, c in by_check(proof, "outputs_close").items()}
    assert outputs == {"0": "fail", "1.hidden": "pass", "1.cell": "pass"}
