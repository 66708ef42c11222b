"""The onnx package's own node tests: what our graph reads and writes again is equal everywhere."""

from __future__ import annotations

from functools import cache

import onnx
import pytest

from oprep.converters.frontends.onnx_rewrite import load_graph, rebuild

PARTS = 8


@cache
def models() -> tuple[tuple[str, bytes], ...]:
    """Generate the node tests: name and serialised model, sorted by name."""
    from onnx.backend.test.case.node import collect_testcases

    cases = collect_testcases(None)
    found = [(case.name, case.model.SerializeToString()) for case in cases if case.model]
    return tuple(sorted(found))


def test_the_node_tests_are_all_there() -> None:
    assert len(models()) > 1_800


@pytest.mark.parametrize("part", range(PARTS))
def test_loading_and_writing_a_model_changes_no_field(part: int) -> None:
    different = []
    for name, data in models()[part::PARTS]:
        again = rebuild(load_graph(data))
        if onnx.ModelProto.FromString(again) != onnx.ModelProto.FromString(data):
            different.append(name)
    assert not different
