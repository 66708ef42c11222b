"""Programs with custom ops, as a rewrite leaves them, for the tests of the ONNX export."""

from __future__ import annotations

import functools

RULES = """
format = 1

[[op]]
name = "onx::gelu"
onnx = { domain = "com.acme", type = "Gelu", version = 3 }
schema = "(Tensor x, float alpha=1.0, *, bool flag=False) -> Tensor"
body = "alpha * x * sigmoid(1.702 * x)"

[[op]]
name = "onx::mix"
onnx = { domain = "com.mix", type = "Mix" }
schema = "(Tensor x, Tensor? b, Tensor[] rest, float[] w, str mode='a') -> (Tensor, Tensor)"
ort_library = "mix.so"

[[op]]
name = "onx::both"
onnx = { domain = "com.acme", type = "Both", version = 3 }
body = "acme = onx::gelu(x); return acme, x - acme"

[[op]]
name = "onx::total"
onnx = { domain = "com.acme", type = "Total", version = 3 }
schema = "(Tensor[] parts) -> Tensor"
body = "cat(*parts, dim=-1)"

[[op]]
name = "onx::bare"
onnx = { domain = "com.acme", type = "Bare", version = 3 }
schema = "(Tensor x) -> Tensor"
"""


@functools.cache
def ops():
    """Register the ops with torch, once per process, and give them as a rule file declares them."""
    import torch

    from oprep.opsets.load import load_opset

    opset = load_opset(RULES, "onx.toml")
    schemas = {
        "gelu": "(Tensor x, float alpha=1.0, *, bool flag=False) -> Tensor",
        "mix": "(Tensor x, Tensor? b, Tensor[] rest, float[] w, str mode='a') -> (Tensor, Tensor)",
        "both": "(Tensor x) -> (Tensor, Tensor)",
        "total": "(Tensor[] parts) -> Tensor",
        "bare": "(Tensor x) -> Tensor",
        "unknown": "(Tensor x) -> Tensor",
        "sized": "(Tensor x, SymInt n) -> Tensor",
    }
    sigmoid = torch.sigmoid
    kernels = {
        "gelu": lambda x, alpha=1.0, flag=False: alpha * x * sigmoid(1.702 * x),
        "mix": lambda x, b, rest, w, mode="a": (x.clone(), rest[0] + rest[-1]),
        "both": lambda x: (x * sigmoid(1.702 * x), x - x * sigmoid(1.702 * x)),
        "total": lambda parts: torch.cat(parts, -1),
        "bare": lambda x: x.clone(),
        "unknown": lambda x: x.clone(),
        "sized": lambda x, n: x * n,
    }
    for name, schema in schemas.items():
        torch.library.define(f"onx::{name}", schema)
        torch.library.impl(f"onx::{name}", "CompositeExplicitAutograd")(kernels[name])
        torch.library.register_fake(f"onx::{name}")(kernels[name])
    return opset.ops


def export(function, *inputs, dynamic=None, module=None, **more):
    """Export a function of the inputs (or a module) as a program and the program as ONNX."""
    from oprep.converters.programs.onnx_export import export_onnx

    registered = ops()
    program = captured(module or function, *inputs, dynamic=dynamic)
    return program, export_onnx(program, registered, **more)


def captured(function, *inputs, dynamic=None):
    import torch

    class Wrapped(torch.nn.Module):
        def forward(self, *args):
            return function(*args)

    module = function if isinstance(function, torch.nn.Module) else Wrapped()
    if dynamic is not None and module is not function:
        dynamic = (dynamic,)
    return torch.export.export(module, inputs, dynamic_shapes=dynamic)


def run(proto, **inputs):
    """Run a model in ONNX Runtime, without any library."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options)
    return session.run(None, {name: value.numpy() for name, value in inputs.items()})
