"""Rewriting alone, protobuf in to protobuf out: CPU microseconds per node, by step, and a peer.

`python docs/benchmarks/rewrite.py [--units 2000 20000 200000] [--peer-limit 20000]`.

A unit is GELU written out in five nodes behind the Add of a bias: six nodes. A chain feeds each
unit to the next; in a wide model all units read the input and one Sum reads all of them. All
shipped rules are on. The peer is the rewriter of onnxscript with one rule that matches the same
GELU; it is measured in the same run, up to --peer-limit units.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import onnx
from onnx import TensorProto, helper
from stages import STEPS, rewrite

WIDTH = 8
NODES = 6


def unit(index: int, x: str) -> list[onnx.NodeProto]:
    """Write the Add of a bias and GELU as PyTorch's exporter does."""
    n = f"u{index}."
    rows = (
        ("Add", [x, "bias"], "wide"),
        ("Div", [f"{n}wide", "root"], "div"),
        ("Erf", [f"{n}div"], "erf"),
        ("Add", [f"{n}erf", "one"], "add"),
        ("Mul", [f"{n}wide", f"{n}add"], "mul"),
        ("Mul", [f"{n}mul", "half"], "act"),
    )
    return [helper.make_node(op, inputs, [n + to], name=f"/{n}{to}") for op, inputs, to in rows]


def build(units: int, *, wide: bool) -> bytes:
    """Make a model of that many units."""
    constants = {"root": 2**0.5, "one": 1.0, "half": 0.5}
    stored = [helper.make_tensor(k, TensorProto.FLOAT, [], [v]) for k, v in constants.items()]
    stored.append(helper.make_tensor("bias", TensorProto.FLOAT, [WIDTH], [0.1] * WIDTH))
    nodes, x = [], "x"
    for index in range(units):
        nodes += unit(index, "x" if wide else x)
        x = f"u{index}.act"
    if wide:
        nodes.append(helper.make_node("Sum", [f"u{i}.act" for i in range(units)], ["y"]))
    else:
        nodes.append(helper.make_node("Identity", [x], ["y"]))
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", WIDTH])
        for name in ("x", "y")
    ]
    graph = helper.make_graph(nodes, "units", ends[:1], ends[1:], stored)
    opsets = [helper.make_opsetid("", 18)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()


def peer(data: bytes) -> tuple[float, int]:
    """Rewrite with onnxscript and one rule; give the seconds and how many it replaced."""
    import onnx_ir
    from onnxscript.rewriter import RewriteRuleSet, pattern

    def written(op, x):  # type: ignore[no-untyped-def]
        return op.Mul(op.Mul(x, op.Add(op.Erf(op.Div(x, 1.4142135)), 1.0)), 0.5)

    def replacement(op, x):  # type: ignore[no-untyped-def]
        return op.Gelu(x, _domain="oprep")

    rules = RewriteRuleSet([pattern.RewriteRule(written, replacement)])
    with quiet():
        began = time.process_time()
        model = onnx_ir.serde.deserialize_model(onnx.ModelProto.FromString(data))
        rules.apply_to_model(model)
        onnx_ir.serde.serialize_model(model).SerializeToString()
        seconds = time.process_time() - began
    return seconds, sum(node.op_type == "Gelu" for node in model.graph)


@contextmanager
def quiet() -> Iterator[None]:
    """Collect garbage first, so that nobody pays for what came before."""
    gc.collect()
    yield


def report(name: str, units: int, action: Callable[[], tuple[dict[str, float], int]]) -> float:
    """Run once and print the microseconds per node of each step; give their sum."""
    nodes = units * NODES + 1
    with quiet():
        steps, found = action()
    if found != units:
        raise SystemExit(f"{name}: {found} of {units} units replaced")
    each = {step: seconds / nodes * 1e6 for step, seconds in steps.items()}
    total = sum(each.values())
    parts = "  ".join(f"{step} {each.get(step, 0):.2f}" for step in STEPS if step in each)
    print(f"{name:14} {nodes:9,} nodes  {total:6.2f} us per node   {parts}", flush=True)
    return total


def main() -> None:
    """Print a line for each model, and the peer's beside it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--units", type=int, nargs="+", default=[2_000, 20_000, 200_000])
    parser.add_argument("--peer-limit", type=int, default=20_000)
    options = parser.parse_args()
    rewrite(build(10, wide=False))
    for units in options.units:
        for wide in (False, True):
            name = f"{'wide' if wide else 'chain'}_{units}"
            data = build(units, wide=wide)
            ours = report(name, units, lambda data=data: rewrite(data))
            if units <= options.peer_limit:
                seconds, found = peer(data)
                theirs = seconds / (units * NODES + 1) * 1e6
                print(
                    f"{'':14} onnxscript with one rule  {theirs:6.2f} us per node, "
                    f"{found} replaced, ratio {theirs / ours:.1f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
