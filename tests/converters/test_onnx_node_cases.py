"""The onnx package's own node tests: what our graph reads and writes again is equal everywhere."""

from __future__ import annotations

import warnings
from functools import cache

import onnx
import pytest

from oprep.converters.frontends.onnx_rewrite import load_graph, rebuild
from oprep.opsets.errors import ExitCode, OprepError

PARTS, OLDEST = 8, 7


@cache
def models() -> tuple[tuple[str, bytes], ...]:
    """Generate the node tests: name and serialised model, sorted by name."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = collect_testcases(None)
    found = [(case.name, case.model.SerializeToString()) for case in cases if case.model]
    return tuple(sorted(found))


def test_the_node_tests_are_all_there() -> None:
    assert len(models()) > 1_800


@pytest.mark.parametrize("part", range(PARTS))
def test_loading_and_writing_a_model_changes_no_field(part: int) -> None:
    different = []
    for name, data in models()[part::PARTS]:
        model = onnx.ModelProto.FromString(data)
        if opset_of(model) >= OLDEST and onnx.ModelProto.FromString(rebuilt(data)) != model:
            different.append(name)
    assert not different


def test_the_few_models_of_opsets_too_old_are_refused() -> None:
    old = [data for _, data in models() if opset_of(onnx.ModelProto.FromString(data)) < OLDEST]
    assert 0 < len(old) < 10
    for data in old:
        with pytest.raises(OprepError) as caught:
            load_graph(data)
        assert caught.value.exit_code == ExitCode.MODEL


def opset_of(model: onnx.ModelProto) -> int:
    """Give the version of the standard domain; a model that does not use it has no old one."""
    return next((entry.version for entry in model.opset_import if not entry.domain), OLDEST)


def rebuilt(data: bytes) -> bytes:
    """Load, lint and index a model, and write it through our own graph."""
    return rebuild(load_graph(data))
