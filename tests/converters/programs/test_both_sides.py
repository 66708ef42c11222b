"""One rule file on a program and on its ONNX export: the same rules match the same number of times.

The exporter writes some ops out (SiLU as Sigmoid and Mul, softplus with a threshold), renames and
merges; a rule must not care. Each model says what it expects, so that two empty plans are no pass.
"""

from __future__ import annotations

import functools
import math
from collections import Counter

import pytest
from torch_child import in_child

RULES = """
format = 1

[[rule]]
name = "gelu-erf"
replace = ["0.5 * x * (1 + erf(x / sqrt(2)))", "gelu(x)"]
with = "gelu(x)"
expect = ">=0"

[[rule]]
name = "gelu-tanh"
replace = [
  "0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x ** 3)))",
  "gelu(x, approximate='tanh')",
]
with = "gelu(x, approximate='tanh')"
expect = ">=0"

[[rule]]
name = "quick-gelu"
replace = "x * sigmoid(1.702 * x)"
with = "x * sigmoid(1.702 * x)"
expect = ">=0"

[[rule]]
name = "swiglu"
replace = ["silu(gate) * up", "gate * sigmoid(gate) * up"]
with = "silu(gate) * up"
expect = ">=0"

[[rule]]
name = "silu"
replace = ["silu(x)", "x * sigmoid(x)"]
with = "silu(x)"
expect = ">=0"

[[rule]]
name = "hardswish"
replace = ["hardswish(x)", "x * clamp(x + 3, 0, 6) / 6", "x * relu6(x + 3) / 6"]
with = "hardswish(x)"
expect = ">=0"

[[rule]]
name = "mish"
replace = ["mish(x)", "x * tanh(softplus(x))"]
with = "mish(x)"
expect = ">=0"

[[rule]]
name = "relu"
replace = "relu(x)"
with = "relu(x)"
expect = ">=0"

[[rule]]
name = "leaky"
replace = "leaky_relu(x, negative_slope=s)"
with = "leaky_relu(x, negative_slope=s)"
expect = ">=0"

[[rule]]
name = "rms"
replace = "x * rsqrt(mean(x ** 2, dim=-1, keepdim=True) + eps) * w"
with = "x * rsqrt(mean(x ** 2, dim=-1, keepdim=True) + eps) * w"
expect = ">=0"

[[rule]]
name = "norm"
replace = "m = mean(x, dim=-1, keepdim=True); d = x - m; return d / sqrt(mean(d ** 2, dim=-1, keepdim=True) + eps)"
with = "m = mean(x, dim=-1, keepdim=True); d = x - m; return d / sqrt(mean(d ** 2, dim=-1, keepdim=True) + eps)"
expect = ">=0"

[[rule]]
name = "attention"
replace = "matmul(softmax(matmul(q, k) * s, dim=-1), v)"
with = "matmul(softmax(matmul(q, k) * s, dim=-1), v)"
expect = ">=0"

[[rule]]
name = "double"
replace = "x * 2"
with = "x + x"
expect = ">=0"

[[rule]]
name = "l2"
replace = "x / sqrt(sum(x ** 2, dim=-1, keepdim=True))"
with = "x / sqrt(sum(x ** 2, dim=-1, keepdim=True))"
expect = ">=0"
"""  # noqa: E501


@functools.cache
def models():
    """Give each model: what it computes, its inputs, dynamic dims, and what must match."""
    import torch
    from torch.nn import functional as f

    root = math.sqrt(2)
    x = torch.randn(3, 4)
    batch = ({0: torch.export.Dim("batch", min=2, max=32)},)

    def tanh_gelu(x):
        return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * torch.pow(x, 3))))

    def rms(x, w):
        return w * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))

    def norm(x):
        centred = x - x.mean(-1, keepdim=True)
        return centred / torch.sqrt((centred**2).mean(-1, keepdim=True) + 1e-5)

    def branches(on, x):
        return torch.cond(on, lambda v: (f.gelu(v),), lambda v: (v * torch.sigmoid(v),), (x,))[0]

    def without_grad(x):
        with torch.no_grad():
            y = f.gelu(x)
        return f.gelu(y + 1)

    shared = torch.nn.GELU()
    gate = torch.randn(3, 4)
    return {
        "gelu": (lambda x: f.gelu(x) + f.gelu(x + 1, approximate="tanh"), (x,), None,
                 {"gelu-erf": 1, "gelu-tanh": 1}),
        "gelu written out": (lambda x: 0.5 * x * (1 + torch.erf(x / root)), (x,), batch,
                             {"gelu-erf": 1}),
        "gelu in another order": (lambda x: (torch.erf(x * (1 / root)) + 1.0) * x / 2, (x,), None,
                                  {"gelu-erf": 1}),
        "gelu with another number": (lambda x: 0.5 * x * (1 + torch.erf(x / 1.5)), (x,), None, {}),
        "gelu by tanh": (tanh_gelu, (x,), batch, {"gelu-tanh": 1}),
        "gelu by tanh and products": (
            lambda x: x * (torch.tanh((x + x * x * x * 0.044715) * 0.7978845608028654) + 1) * 0.5,
            (x,), None, {"gelu-tanh": 1}),
        "quick gelu": (lambda x: x * torch.sigmoid(1.702 * x), (x,), None, {"quick-gelu": 1}),
        "silu": (lambda x, y: f.silu(x) + torch.sigmoid(y) * y, (x, gate), None, {"silu": 2}),
        "a gate that is no silu": (lambda x, y: torch.sigmoid(x) * y, (x, gate), None, {}),
        "swiglu": (lambda x, y: f.silu(x) * y, (x, gate), (*batch, {0: batch[0][0]}),
                   {"swiglu": 1}),
        "swiglu written out": (lambda x, y: y * (torch.sigmoid(x) * x), (x, gate), None,
                               {"swiglu": 1}),
        "hardswish": (lambda x, y: f.hardswish(x) + y * f.relu6(y + 3) / 6, (x, gate), None,
                      {"hardswish": 2}),
        "mish": (lambda x, y: f.mish(x) + y * torch.tanh(f.softplus(y)), (x, gate), None,
                 {"mish": 2}),
        "relu in place": (lambda x: torch.relu_(x + 1) + torch.nn.ReLU(inplace=True)(x * 3), (x,),
                          None, {"relu": 2}),
        "leaky": (lambda x: f.leaky_relu(x) + f.leaky_relu(x + 1, 0.3), (x,), None, {"leaky": 2}),
        "rms norm": (rms, (x, torch.randn(4)), None, {"rms": 1}),
        "norm": (norm, (x,), batch, {"norm": 1}),
        "attention": (
            lambda q, k, v: torch.softmax(q @ k.transpose(-1, -2) / 2.0, -1) @ v,
            (torch.randn(2, 3, 4), torch.randn(2, 5, 4), torch.randn(2, 5, 4)), None,
            {"attention": 1}),
        "double": (lambda x: x * 2 + (x.exp() * 2.0), (x,), None, {"double": 2}),
        "unit": (lambda x: x / x.pow(2).sum(-1, keepdim=True).sqrt(), (x,), None, {"l2": 1}),
        "branches": (branches, (torch.tensor(True), x), None, {"gelu-erf": 1, "silu": 1}),
        "without grad": (without_grad, (x,), None, {"gelu-erf": 2}),
        "one module twice": (lambda x: shared(shared(x) - 1), (x,), None, {"gelu-erf": 2}),
        "half": (lambda x: f.gelu(x), (x.half(),), None, {"gelu-erf": 1}),
    }  # fmt: skip


@functools.cache
def rules():
    from oprep.opsets.load import load_opset

    return load_opset(RULES, "both.toml")


def counts(model):
    import oprep

    report = oprep.convert(model, rules=[rules()], dry_run=True)
    return {item.rule: len(item.sites) for item in report.rules if item.sites}


GROUPS = {
    "gelu": ("gelu", "gelu written out", "gelu in another order", "gelu with another number",
             "gelu by tanh", "gelu by tanh and products", "quick gelu", "half"),
    "others": ("silu", "a gate that is no silu", "swiglu", "swiglu written out", "hardswish",
               "mish", "relu in place", "leaky", "double"),
    "norms": ("rms norm", "norm", "attention", "unit"),
    "regions": ("branches", "without grad", "one module twice"),
}  # fmt: skip
"""Models that are captured and exported together; each has its inputs for itself."""


@pytest.mark.parametrize("group", GROUPS)
@in_child()
def test_a_rule_matches_as_often_in_a_program_as_in_its_onnx_export(group):
    import torch
    from exporting import captured

    from oprep.converters.programs.onnx_export import export_onnx

    chosen = [models()[name] for name in GROUPS[group]]
    lengths = [len(inputs) for _, inputs, _, _ in chosen]

    class Together(torch.nn.Module):
        def forward(self, *given):
            left, results = list(given), []
            for (function, _, _, _), length in zip(chosen, lengths, strict=True):
                results.append(function(*left[:length]))
                del left[:length]
            return results

    inputs = [item.clone() for _, given, _, _ in chosen for item in given]
    dims = [dim for (_, given, dynamic, _) in chosen for dim in dynamic or [None] * len(given)]
    program = captured(Together(), *inputs, dynamic=(tuple(dims),))
    expected = Counter()
    for _, _, _, each in chosen:
        expected.update(each)
    found = (counts(program), counts(export_onnx(program).proto))
    assert found == (expected, expected), found


@in_child()
def test_every_model_is_in_a_group():
    assert sorted(models()) == sorted(name for names in GROUPS.values() for name in names)
