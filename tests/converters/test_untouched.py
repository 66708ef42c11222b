"""What no match touched is byte-equal before and after: nodes, weights, functions, metadata.

Regions are compared one by one. A node that holds graphs is compared without them, because the
graphs are regions themselves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from onnx.external_data_helper import uses_external_data

from oprep.converters.report import Report
from tests.corpus.converting import converted
from tests.corpus.real import every_case

Region = onnx.GraphProto | onnx.FunctionProto
KEYS = {"oprep.version", "oprep.rules"}


def regions(model: onnx.ModelProto) -> dict[str, Region]:
    """Name every region: the main graph, the graphs in nodes by position, functions."""
    found: dict[str, Region] = {}

    def enter(path: str, region: Region) -> None:
        found[path] = region
        for node in region.node:
            for attribute in node.attribute:
                if attribute.HasField("g"):
                    enter(f"{path}/{node.name}.{attribute.name}", attribute.g)

    enter("main", model.graph)
    for function in model.functions:
        enter(f"{function.domain}::{function.name}:{function.overload}", function)
    return found


def stripped(node: onnx.NodeProto) -> bytes:
    """Give a node's bytes without the graphs that it holds."""
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    for attribute in copy.attribute:
        attribute.ClearField("g")
    return bytes(copy.SerializeToString(deterministic=True))


def counted(messages: Iterator[Any]) -> Counter[bytes]:
    """Count serialised messages."""
    return Counter(message.SerializeToString(deterministic=True) for message in messages)


def moved(tensors: Iterator[onnx.TensorProto]) -> Iterator[onnx.TensorProto]:
    """Leave out where external data lies: that may change."""
    for tensor in tensors:
        copy = onnx.TensorProto()
        copy.CopyFrom(tensor)
        if uses_external_data(tensor):
            kept = [e for e in tensor.external_data if e.key not in ("location", "offset")]
            del copy.external_data[:]
            copy.external_data.extend(kept)
        yield copy


def gone_names(report: Report) -> set[str]:
    """Give the names of the nodes that the report says went."""
    return {name for rule in report.rules for site in rule.sites for name in site.nodes}


@dataclass(frozen=True)
class Conversion:
    """A report, the model before and after, and the sites by rule that there have to be."""

    report: Report
    before: onnx.ModelProto
    after: onnx.ModelProto
    expected: dict[str, int]


CASES = {name: (model, rules, expected) for name, model, rules, expected in every_case()}
each = pytest.mark.parametrize("case", CASES)


@cache
def conversion(case: str) -> Conversion:
    """Convert once per case, however many tests look at it."""
    model, rules, expected = CASES[case]
    report, artifact = converted(model, rules=[rules])
    return Conversion(report, onnx.load(model, load_external_data=False), artifact, expected)


def parts(case: str) -> tuple[Report, onnx.ModelProto, onnx.ModelProto]:
    """Give the report, the model before and the model after."""
    got = conversion(case)
    return got.report, got.before, got.after


@each
def test_each_rule_finds_its_sites(case: str) -> None:
    got = conversion(case)
    assert {rule.rule: len(rule.sites) for rule in got.report.rules} == got.expected


@each
def test_nodes_differ_by_the_matches_alone(case: str) -> None:
    report, before, after = parts(case)
    old, new = regions(before), regions(after)
    assert set(old) <= set(new)
    added_nodes = 0
    for path, region in old.items():
        was = Counter(stripped(node) for node in region.node)
        now = Counter(stripped(node) for node in new[path].node)
        added = [onnx.NodeProto.FromString(data) for data in (now - was).elements()]
        removed = [onnx.NodeProto.FromString(data) for data in (was - now).elements()]
        assert bool(added) == bool(removed), path
        added_nodes += sum(node.domain == "com.acme" for node in added)
        read = {value for node in new[path].node for value in node.input}
        for node in removed:
            constant = node.op_type in ("Constant", "Identity") and node.output[0] not in read
            named = any(node.name and node.name in name for name in gone_names(report))
            assert constant or named or not node.name, node
    if any(rule.replacement.startswith("com.acme") for rule in report.rules):
        assert added_nodes == report.matches


@each
def test_the_order_of_untouched_nodes_stays(case: str) -> None:
    _, before, after = parts(case)
    new = regions(after)
    for path, region in regions(before).items():
        here = {stripped(node) for node in new[path].node}
        was = [stripped(node) for node in region.node]
        there = set(was)
        left = [data for data in was if data in here]
        assert left == [s for node in new[path].node if (s := stripped(node)) in there]


@each
def test_weights_go_only_where_nothing_reads_them(case: str) -> None:
    _, before, after = parts(case)
    everything = regions(after)
    read = {v for region in everything.values() for node in region.node for v in node.input}
    for path, region in regions(before).items():
        if not isinstance(region, onnx.GraphProto):
            continue
        was = counted(moved(iter(region.initializer)))
        now = counted(moved(iter(everything[path].initializer)))
        for data in (was - now).elements():
            tensor = onnx.TensorProto.FromString(data)
            assert tensor.name not in read
            assert tensor.name not in {value.name for value in region.input}


@each
def test_weights_that_nothing_read_before_stay(case: str) -> None:
    _, before, after = parts(case)
    read = {v for region in regions(before).values() for n in region.node for v in n.input}
    new = regions(after)
    for path, region in regions(before).items():
        if isinstance(region, onnx.GraphProto):
            idle = {tensor.name for tensor in region.initializer} - read
            assert idle <= {tensor.name for tensor in new[path].initializer}


@each
def test_the_signature_and_what_describes_the_model_stay(case: str) -> None:
    _, before, after = parts(case)
    assert counted(iter(before.graph.input)) == counted(iter(after.graph.input))
    assert [v.name for v in before.graph.input] == [v.name for v in after.graph.input]
    assert [v.SerializeToString() for v in before.graph.output] == [
        v.SerializeToString() for v in after.graph.output
    ]
    for field in ("ir_version", "producer_name", "producer_version", "domain", "model_version"):
        assert getattr(before, field) == getattr(after, field)
    assert before.doc_string == after.doc_string
    assert before.graph.name == after.graph.name
    assert before.graph.doc_string == after.graph.doc_string
    kept = [entry for entry in after.metadata_props if entry.key not in KEYS]
    assert list(before.metadata_props) == kept
    assert list(before.graph.metadata_props) == list(after.graph.metadata_props)
    assert list(before.graph.quantization_annotation) == list(after.graph.quantization_annotation)
    imports = {entry.domain: entry.version for entry in after.opset_import}
    assert {e.domain: e.version for e in before.opset_import}.items() <= imports.items()


@each
def test_types_of_values_stay_where_the_values_do(case: str) -> None:
    _, before, after = parts(case)
    new = regions(after)
    for path, region in regions(before).items():
        made = {value for node in new[path].node for value in node.output}
        was = {info.name: info.SerializeToString() for info in region.value_info}
        now = {info.name: info.SerializeToString() for info in new[path].value_info}
        assert {name: was[name] for name in was if name in made} == {
            name: now[name] for name in now if name in was and name in made
        }


@each
def test_the_artifact_is_valid(case: str) -> None:
    after = onnx.ModelProto()
    after.CopyFrom(parts(case)[2])
    for tensor in after.graph.initializer:
        if uses_external_data(tensor):
            tensor.CopyFrom(numpy_helper.from_array(np.zeros(tensor.dims, np.float32), tensor.name))
    onnx.checker.check_model(after)
    onnx.shape_inference.infer_shapes(after, check_type=True, strict_mode=True)
