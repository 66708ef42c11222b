"""What a pickle names is told without running it, whatever its bytes are."""

from __future__ import annotations

import io
import pickle
import pickletools
from collections import OrderedDict
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oprep.converters.files import Content
from oprep.converters.pickled import Pickled, pickled
from oprep.opsets.errors import ExitCode, OprepError


def content(data: bytes) -> Content:
    return Content(Path("w.pt"), data, "")


class Planted:
    def __init__(self, *called):
        self.called = called

    def __reduce__(self):
        return self.called


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)


@given(plain, st.integers(2, 5))
def test_plain_data_names_nothing_foreign(value, protocol):
    found = pickled(content(pickle.dumps(OrderedDict(a=value), protocol)))
    assert found.foreign == ()


@given(plain, st.integers(2, 5), st.sampled_from([eval, print, io.StringIO, pickletools.dis]))
def test_a_planted_call_is_named(value, protocol, called):
    data = pickle.dumps([value, {"x": Planted(called, ("1",))}], protocol)
    wanted = f"{called.__module__}.{called.__qualname__}"
    wanted = wanted.replace("builtins", "__builtin__") if protocol < 3 else wanted
    assert wanted in pickled(content(data)).foreign


@given(st.binary(max_size=200))
def test_any_bytes_end_in_a_list_or_a_refusal(data):
    try:
        found = pickled(content(b"\x80\x02" + data))
    except OprepError as error:
        code = error.exit_code
    else:
        assert isinstance(found, Pickled)
        code = ExitCode.MODEL
    assert code is ExitCode.MODEL


@pytest.mark.parametrize("cut", [3, 10, 30])
def test_a_pickle_cut_short_is_damaged(cut):
    data = pickle.dumps(OrderedDict(a=[1, 2, 3], b="text"), 2)
    with pytest.raises(OprepError, match="damaged"):
        pickled(content(data[:-cut]))
