"""Convert a model through files and give the report with what was written."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx

from oprep.converters.pipeline import convert
from oprep.converters.report import Report

GELU = """
[[op]]
name = "acme::gelu"
onnx = { domain = "com.acme", type = "Gelu", version = 1 }
body = "0.5 * x * (1 + erf(x / sqrt(2)))"

[[rule]]
name    = "gelu"
replace = "0.5 * x * (1 + erf(x / sqrt(2)))"
with    = "acme::gelu(x)"
"""


def converted(
    model: onnx.ModelProto | Path, *, text: str = "", verify: bool = False, **words: Any
) -> tuple[Report, onnx.ModelProto]:
    """Convert with the rules of `text` (or those in `words`); give the report and the artifact."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = model if isinstance(model, Path) else folder / "model.onnx"
        if not isinstance(model, Path):
            path.write_bytes(model.SerializeToString())
        if text:
            (folder / "rules.toml").write_text(f"format = 1\n{text}")
            words["rules"] = [folder / "rules.toml"]
        output = folder / "out" / "out.onnx"
        output.parent.mkdir()
        report = convert(path, output=output, verify=verify, **words)
        return report, onnx.load(output, load_external_data=False)


def explained(model: onnx.ModelProto, text: str) -> Report:
    """Plan with the rules of `text` and give the report, near misses and all."""
    with tempfile.TemporaryDirectory() as name:
        path, rules = Path(name, "model.onnx"), Path(name, "rules.toml")
        path.write_bytes(model.SerializeToString())
        rules.write_text(f"format = 1\n{text}")
        return convert(path, rules=[rules], dry_run=True)


def sites(report: Report) -> list[str]:
    """List the replaced sites of all rules."""
    return [site.site for rule in report.rules for site in rule.sites]


def graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """Give a graph and every graph inside of it."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for inner in [*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])]:
                yield from graphs(inner)


def nodes(model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    """Give every node of a model: main graph, graphs inside nodes, functions."""
    for graph in graphs(model.graph):
        yield from graph.node
    for function in model.functions:
        for node in function.node:
            yield node
            for attribute in node.attribute:
                if attribute.HasField("g"):
                    for inner in graphs(attribute.g):
                        yield from inner.node


def of_type(model: onnx.ModelProto, domain: str, op: str) -> list[onnx.NodeProto]:
    """List the nodes of one op."""
    return [node for node in nodes(model) if (node.domain, node.op_type) == (domain, op)]
