"""The plain view of `onnx.defs`."""

from __future__ import annotations

import onnx.defs

from oprep.converters.frontends.onnx_schema import newest_opset, schema, versions


def test_an_op_has_the_form_of_the_opset_that_is_asked_for() -> None:
    old, new = schema("", "Clip", 10), schema("", "Clip", 11)
    assert old is not None
    assert new is not None
    assert [formal.name for formal in old.inputs] == ["input"]
    assert [formal.name for formal in new.inputs] == ["input", "min", "max"]
    assert new.inputs[1].optional
    assert not new.attributes
    assert old.attributes["min"].kind == "FLOAT"
    assert old.attributes["min"].default == -3.4028234663852886e38
    assert new.input_index("max") == 2
    assert new.input_index("axes") is None


def test_an_attribute_default_is_a_plain_value() -> None:
    gelu, softmax = schema("", "Gelu", 20), schema("", "Softmax", 13)
    assert gelu is not None
    assert softmax is not None
    assert gelu.attributes["approximate"].default == "none"
    assert softmax.attributes["axis"].default == -1
    concat = schema("", "Concat", 13)
    assert concat is not None
    assert concat.attributes["axis"].required
    assert concat.variadic_inputs


def test_what_onnx_does_not_know_has_no_schema() -> None:
    assert schema("com.microsoft", "Gelu", 1) is None
    assert schema("", "Gelu", 19) is None
    assert schema("", "NoSuchOp", 20) is None
    assert versions("", "NoSuchOp") == ()


def test_an_op_that_was_withdrawn_has_no_schema_from_then_on() -> None:
    assert schema("", "Upsample", 9) is not None
    assert schema("", "Upsample", 10) is None
    assert versions("", "Upsample") == (1, 7, 9)


def test_both_spellings_of_the_standard_domain_are_one() -> None:
    assert schema("ai.onnx", "Relu", 14) == schema("", "Relu", 14)
    assert versions("ai.onnx", "Relu") == versions("", "Relu")


def test_float_only_says_that_no_other_result_can_be() -> None:
    old, new = schema("", "Relu", 13), schema("", "Relu", 14)
    assert old is not None
    assert new is not None
    assert old.float_only
    assert not new.float_only


def test_each_schema_of_onnx_reads_and_names_its_inputs_in_order() -> None:
    known = [item for item in onnx.defs.get_all_schemas_with_history() if not item.deprecated]
    for item in known:
        ours = schema(item.domain, item.name, item.since_version)
        assert ours is not None
        assert ours.since == item.since_version
        assert [formal.name for formal in ours.inputs] == [formal.name for formal in item.inputs]
        assert set(ours.attributes) == set(item.attributes)
        assert len(ours.outputs) == len(ours.output_types) == len(item.outputs)
        assert ours.least_inputs == item.min_input


def test_the_newest_opset_is_that_of_the_installed_onnx() -> None:
    assert newest_opset() == onnx.defs.onnx_opset_version()
