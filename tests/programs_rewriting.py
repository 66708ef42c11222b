"""Rewrite a module that was captured on the spot, and compare; runs in the child."""

from __future__ import annotations

import io
from typing import Any

OPS = """
[[op]]
name = "rewriting::gelu"
body = "0.5 * x * (1 + erf(x / sqrt(2)))"
[[op]]
name = "rewriting::act"
schema = "(Tensor x, float slope=0.5) -> Tensor"
body = "x * sigmoid(x) + slope * 0"
[[op]]
name = "rewriting::two"
body = '''s = sigmoid(x)
return x * s, s'''
[[op]]
name = "rewriting::join"
schema = "(Tensor[] xs, int dim=0) -> Tensor"
body = "cat(*xs, dim=dim)"
"""


def captured(module: Any, args: tuple[Any, ...], **export: Any) -> Any:
    """Export a module; one that is exported already stays."""
    import torch

    if isinstance(module, torch.export.ExportedProgram):
        return module
    return torch.export.export(module, args, **export)


def conversion(exported: Any, rules: str, code: dict[str, bytes] | None = None) -> Any:
    """Register the ops of `OPS` and of `rules`, and index a program."""
    from oprep.converters.programs.conversion import ProgramConversion
    from oprep.converters.programs.ops import install
    from oprep.converters.programs.program import Program
    from oprep.opsets.load import load_opset

    opset = load_opset("format = 1\n" + OPS + rules, "rules", file="rules.toml")
    install(opset.ops, code or {})
    return ProgramConversion(Program(exported, "model", "object", "export"), [opset])


def rewritten(
    exported: Any, rules: str, count: int | None = None, code: dict[str, bytes] | None = None
) -> Any:
    """Give the program after the rules; with `count`, so many sites must have matched."""
    made = conversion(exported, rules, code)
    found = made.plan(explain=True)
    if count is not None:
        told = [(miss.site, miss.reason) for item in found.outcomes for miss in item.misses]
        assert len(found.matches) == count, (len(found.matches), told)
    return made.rewritten(found.matches)


def rule(replace: str, with_: str, **keys: str) -> str:
    """Write one rule; `replace` is an equation, or TOML where it starts with a bracket."""
    written = replace if replace[0] in "[{" else f"'''{replace}'''"
    more = "".join(f"{key} = {value}\n" for key, value in keys.items())
    return f"[[rule]]\nreplace = {written}\nwith = '''{with_}'''\n{more}"


def calls(program: Any) -> list[str]:
    """Name the ops of the main graph in order, `getitem` left out."""
    return [
        node.target.name().removesuffix(".default")
        for node in program.graph.nodes
        if node.op == "call_function" and hasattr(node.target, "_schema")
    ]


def assert_same(one: Any, other: Any, *inputs: Any, tolerance: float = 1e-6) -> None:
    """Run two programs on copies of the inputs; all outputs must be close, and laid out alike."""
    import copy

    import torch
    from torch.utils._pytree import tree_leaves

    results = [copy.deepcopy(program).module()(*copy.deepcopy(inputs)) for program in (one, other)]
    left, right = map(tree_leaves, results)
    assert len(left) == len(right)
    for a, b in zip(left, right, strict=True):
        if isinstance(a, torch.Tensor):
            torch.testing.assert_close(a, b, atol=tolerance, rtol=1e-5, equal_nan=True)
            assert a.stride() == b.stride()
        else:
            assert a == b


def reloaded(program: Any) -> Any:
    """Save a program and load it again, in this process."""
    import torch

    held = io.BytesIO()
    torch.export.save(program, held)
    held.seek(0)
    return torch.export.load(held)
