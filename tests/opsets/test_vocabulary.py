"""The vocabulary against its sources: torch's signatures, ONNX's schemas by version."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import onnx.defs
import pytest

from oprep.converters.frontends.onnx_schema import newest_opset, schema, versions
from oprep.opsets.rule import REQUIRED
from oprep.opsets.vocabulary import OLDEST_OPSET, OnnxForm, renames, vocabulary

FORMS = [(name, form) for name, row in vocabulary().items() for form in row.onnx]

# Parameters that an op lost for good, with its meaning: no newer name stands for them.
GONE = {
    ("BatchNormalization", "spatial"),
    ("Scan", "directions"),
    ("Scan", "sequence_lens"),
}

# What torch calls a parameter in the function, where the overload calls it otherwise.
ATEN_NAMES = {
    ("cast", "dtype"): "dtype",
    ("dropout", "training"): "train",
    ("einsum", "operands"): "tensors",
    ("embedding", "input"): "indices",
    ("split", "split_size_or_sections"): "split_sizes",
    ("split", "tensor"): "self",
    ("vector_norm", "x"): "self",
    ("where", "input"): "self",
}
# The function has a default where its overload has None.
ATEN_REQUIRED = {("std", "correction"), ("var", "correction")}


def covered(form: OnnxForm) -> Iterator[int]:
    return iter(range(form.since, (form.until or newest_opset()) + 1))


def test_there_are_functions_for_what_common_models_hold() -> None:
    assert len(vocabulary()) >= 150
    assert "gelu" in vocabulary()
    assert "no_such_function" not in vocabulary()


def test_a_row_read_alone_is_the_row_of_the_whole_table() -> None:
    assert vocabulary()["gelu"] is vocabulary()["gelu"]
    assert vocabulary()["gelu"].parameters[1].default == "none"
    assert vocabulary()["softmax"].parameters[1].default is REQUIRED
    with pytest.raises(KeyError):
        vocabulary()["no_such_function"]


@pytest.mark.parametrize(("name", "form"), FORMS)
def test_a_form_fits_the_schema_of_every_opset_that_it_covers(name: str, form: OnnxForm) -> None:
    assert form.since >= OLDEST_OPSET
    for opset in covered(form) if form.op else ():
        formal = schema(form.domain, form.op, opset)
        assert formal is not None, opset
        assert len(form.inputs) <= len(formal.inputs) or formal.variadic_inputs
        assert {slot.name for slot in form.attributes} <= set(formal.attributes)
        required = {key for key, info in formal.attributes.items() if info.required}
        assert required <= {slot.name for slot in form.attributes}


@pytest.mark.parametrize(("name", "form"), FORMS)
def test_a_form_speaks_of_parameters_that_the_function_has(name: str, form: OnnxForm) -> None:
    known = {parameter.name for parameter in vocabulary()[name].parameters}
    slots = [slot.parameter for slot in (*form.inputs, *form.attributes) if slot.parameter]
    assert set(slots) <= known
    assert bool(form.op) != bool(form.equation)


def test_every_function_can_be_written_in_the_newest_opset() -> None:
    for name, row in vocabulary().items():
        assert any(form.emit and form.covers(newest_opset()) for form in row.onnx), name


def overloads(name: str) -> list[Any]:
    import torch

    found = []
    for aten in vocabulary()[name].aten:
        op, _, overload = aten.partition(".")
        found.append(getattr(getattr(torch.ops.aten, op), overload or "default"))
    return found


@pytest.mark.parametrize("name", [name for name, row in vocabulary().items() if row.aten])
def test_names_and_defaults_are_those_of_torch(name: str) -> None:
    arguments: dict[str, list[Any]] = {}
    for overload in overloads(name):
        for argument in overload._schema.arguments:
            given = argument.default_value if argument.has_default_value() else REQUIRED
            arguments.setdefault(argument.name, []).append(
                given if given is REQUIRED else given or 0
            )
    for parameter in vocabulary()[name].parameters:
        own = ATEN_NAMES.get((name, parameter.name), parameter.name)
        own = "self" if own == "input" and "self" in arguments else own
        assert own in arguments, parameter.name
        if len(arguments[own]) < len(overloads(name)):
            # an overload without the parameter is the call that leaves it out
            arguments[own].append(0)
        if (name, parameter.name) not in ATEN_REQUIRED:
            assert any(alike(parameter.default, item) for item in arguments[own]), parameter.name


def alike(ours: object, theirs: object) -> bool:
    """Compare defaults: a number stands for a list of it; an overload may ask for all arguments."""
    if ours is REQUIRED or theirs is REQUIRED:
        return theirs is REQUIRED
    return (ours or 0) in (theirs, *(theirs if isinstance(theirs, list) else ()))


def parameters(op: str, opset: int) -> set[str]:
    found = schema("", op, opset)
    assert found is not None
    return {formal.name for formal in found.inputs} | set(found.attributes)


def standard_ops() -> list[str]:
    found = {item.name for item in onnx.defs.get_all_schemas_with_history() if not item.domain}
    return sorted(name for name in found if schema("", name, newest_opset()))


def test_a_renamed_parameter_had_its_old_name_in_just_these_opsets() -> None:
    for (op, parameter), olds in renames().items():
        assert parameter in parameters(op, newest_opset())
        for old in olds:
            for opset in versions("", op):
                has_old = old.name in parameters(op, opset)
                assert has_old == (old.since <= opset <= old.until), (op, opset)
                assert (parameter in parameters(op, opset)) != has_old or opset > old.until


def test_every_parameter_that_a_newer_opset_lacks_is_renamed_or_gone_for_good() -> None:
    known = {(op, old.name) for (op, _), olds in renames().items() for old in olds}
    for op in standard_ops():
        first = max(OLDEST_OPSET, versions("", op)[0])
        for opset in {first, *(v for v in versions("", op) if v > first)}:
            lost = parameters(op, opset) - parameters(op, newest_opset())
            assert {(op, name) for name in lost} <= known | GONE
