"""JSON of programs against the schema, and how deep it may be nested."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch_child import in_child

from oprep.converters.pt2.structure import LEAVES, Misshapen, parse


def depth_of(value: object) -> int:
    if isinstance(value, dict):
        return 1 + max(map(depth_of, value.values()), default=0)
    if isinstance(value, list):
        return 1 + max(map(depth_of, value), default=0)
    return 0


@pytest.mark.parametrize("opening", [b"[", b'{"a":', b'[{"[[[": '])
def test_p04_json_is_nested_at_most_200_deep(opening):
    levels = opening.count(b"[") + opening.count(b"{")
    levels = 2 if opening.startswith(b"[{") else levels
    closing = b"}]" if levels == 2 else bytes([opening[0] + 2])
    times = 200 // levels
    assert depth_of(parse(opening * times + b"1" + closing * times)) == 200
    with pytest.raises(Misshapen, match="200 deep"):
        parse(opening * (times + 1) + b"1" + closing * (times + 1))


@given(
    st.recursive(
        st.none() | st.integers() | st.text(st.sampled_from('[]{}"\\ü,:')),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(st.sampled_from('[]{}"\\')), inner),
    )
)
def test_what_is_not_nested_deep_is_parsed_whatever_its_texts(value):
    assert parse(json.dumps(value).encode()) == value


@pytest.mark.parametrize("data", [b"", b"[", b"]", b"[}", b'"[', b"\xff", b"[NaN]", b"1 2", b"[1"])
def test_what_is_no_json_is_told(data):
    with pytest.raises(Misshapen, match="is no JSON"):
        parse(data)


def test_a_long_number_is_refused_not_converted():
    with pytest.raises(Misshapen, match="is no JSON"):
        parse(b"1" * 10_000)


@in_child()
def test_the_table_is_the_schema_of_the_torch_that_is_installed():
    """A field that torch has and the table lacks would go unchecked."""
    import dataclasses

    from torch._export.serde import schema
    from torch._export.serde.union import _Union

    from oprep.converters.pt2.schema import DTYPES, MAJOR, RECORDS, UNIONS

    assert schema.SCHEMA_VERSION[0] == MAJOR
    for name, fields in {**RECORDS, **UNIONS}.items():
        theirs = {field.name for field in dataclasses.fields(getattr(schema, name))}
        assert {field.rstrip("?") for field in fields} == theirs, name
        assert issubclass(getattr(schema, name), _Union) == (name in UNIONS)
    assert DTYPES.keys() == {int(kind) for kind in schema.ScalarType} - {0}


@in_child()
def test_dtypes_have_the_names_and_widths_of_torch():
    import torch
    from torch._export.serde.serialize import _SERIALIZE_TO_TORCH_DTYPE

    from oprep.converters.pt2.schema import DTYPES, WIDTHS

    for number, dtype in _SERIALIZE_TO_TORCH_DTYPE.items():
        assert str(dtype) == f"torch.{DTYPES[number]}"
        assert torch.empty(0, dtype=dtype).element_size() == WIDTHS[number]


def test_every_kind_of_the_table_is_known():
    from oprep.converters.pt2.schema import RECORDS, UNIONS

    used = {kind for fields in (*RECORDS.values(), *UNIONS.values()) for kind in fields.values()}
    for kind in used:
        for part in kind.strip("?[]{}").replace("{", "").split(":"):
            assert part.strip("?[]{}") in {*LEAVES, *RECORDS, *UNIONS}
