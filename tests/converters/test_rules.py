"""What is said of a rule file before any model is looked at."""

from __future__ import annotations

import pytest

from oprep.converters.rules import unused_code
from oprep.opsets.load import load_opset


@pytest.mark.parametrize(
    ("body", "words"),
    [('body = "relu(x)"', "its body is"), ("", "and it has no `body`")],
    ids=["with a body", "without"],
)
def test_code_that_onnx_does_not_use_is_said_to_be_unused(body: str, words: str) -> None:
    text = f'format = 1\n[[op]]\nname = "acme::f"\npython = "ops.py:F"\n{body}\n'
    (note,) = unused_code([load_opset(text, "acme", file="rules.toml")])
    assert note == f"`python` of `acme::f` is not used for ONNX, {words}"
