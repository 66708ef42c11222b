"""Small twins written by hand, so that checks can be tested apart from the matcher."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from onnx import ModelProto, NodeProto, parser

from oprep.converters.checks.subject import Options, Subject
from oprep.converters.prove import Proof, prove
from oprep.converters.report import CheckResult
from oprep.converters.runner import Child
from oprep.converters.runs import Loadable
from oprep.converters.twin import RegionPath, TwinPlan, TwinSite
from oprep.opsets.rule import Tolerance

MAIN: RegionPath = ()


def model(body: str, opset: int = 17, ir: int = 8, extra: str = "") -> ModelProto:
    """Read a model in ONNX text syntax."""
    return parser.parse_model(f'<ir_version: {ir}, opset_import: ["": {opset}{extra}]> {body}')


def function(name: str, domain: str = "f") -> RegionPath:
    """Give the region of a model-local function."""
    return (("function", domain, name, ""),)


def site(
    name: str,
    region: RegionPath,
    value: str,
    nodes: str,
    reads: Sequence[str],
    tolerance: Tolerance | None = None,
) -> TwinSite:
    """Make a site for `value`; `nodes` computes `{out}` in ONNX text syntax."""
    out = f"{name}_candidate"
    return TwinSite(
        name,
        "rule",
        region,
        0,
        _nodes(nodes.replace("{out}", out).replace("{t}", name)),
        ((value, out),),
        tuple(reads),
        tolerance,
    )


def _nodes(text: str) -> tuple[NodeProto, ...]:
    graph = parser.parse_graph(f"g () => () {{ {text} }}")
    return tuple(graph.node)


class Pool:
    """Children that outlive a proof, since starting one takes longer than most small proofs."""

    def __init__(self) -> None:
        self.idle: list[Child] = []

    @contextmanager
    def lend(self, *, readable: tuple[Path, ...]) -> Iterator[Child]:
        assert not readable, "a pooled child reads no folder"
        child = self.idle.pop() if self.idle else Child()
        try:
            yield child
        finally:
            self.idle.append(child)

    def close(self) -> None:
        for child in self.idle:
            child.close()


def check(
    proto: ModelProto,
    sites: Sequence[TwinSite] = (),
    candidate: ModelProto | None = None,
    functions: Sequence[Any] = (),
    imports: Sequence[tuple[str, int]] = (),
    **options: Any,
) -> Proof:
    """Prove sites on a model, and `candidate` (the model itself by default) end to end."""
    after = proto if candidate is None else candidate
    plan = TwinPlan(list(sites), functions, imports) if sites else None
    subject = Subject(
        proto,
        Loadable(proto.SerializeToString()),
        after,
        Loadable(after.SerializeToString()),
        plan,
        replace(Options(seconds=20), **options),
    )
    return prove(subject)


def results(proof: Proof, name: str) -> dict[str, CheckResult]:
    """Give the results of one check by site or output."""
    return {item.name: item for item in proof.checks if item.check == name}


def sites(proof: Proof) -> dict[str, CheckResult]:
    """Give the results of the sites."""
    return results(proof, "sites_close")


def outputs(proof: Proof) -> dict[str, CheckResult]:
    """Give the results of the outputs."""
    return results(proof, "outputs_close")
