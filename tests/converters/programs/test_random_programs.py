"""Random modules, random rules that keep values: what a program shows is the same after a rewrite.

Compared are outputs, strides, what is written into inputs and buffers, a second call, gradients,
the state dict, and the program after saving and loading, at other sizes.
"""

from __future__ import annotations

import pytest
from torch_child import in_child

EXAMPLES = 200


@in_child(240)
def test_a_rewrite_changes_nothing_that_can_be_seen():
    import hypothesis
    from hypothesis import strategies as st
    from programs_random import RULES, STEPS, drawn, faults

    number = st.integers(0, 5)
    steps = st.lists(st.tuples(st.sampled_from(STEPS), number, number), min_size=2, max_size=12)
    outputs = st.lists(st.integers(0, 7), min_size=1, max_size=3)
    rules = st.lists(st.sampled_from(sorted(RULES)), min_size=1, unique=True)
    matched = 0

    @hypothesis.settings(
        max_examples=EXAMPLES, deadline=None, database=None, derandomize=True,
        phases=[hypothesis.Phase.generate], suppress_health_check=list(hypothesis.HealthCheck),
    )  # fmt: skip
    @hypothesis.given(steps, outputs, number, rules)
    def check(steps, outputs, shape, rules):
        nonlocal matched
        exported = drawn(steps, outputs, shape % 3)
        if exported is not None:
            found, count = faults(exported, rules)
            matched += count
            assert not found, found

    check()
    assert matched > EXAMPLES


PLANTED: dict[str, tuple[list[tuple[str, int, int]], dict[str, str], str, str]] = {
    "a value that is off by one percent": (
        [("silu", 0, 0)],
        {"silu": "replace = 'silu(x)'\nwith = '1.01 * x * sigmoid(x)'"},
        "",
        "output 0 of call 0",
    ),
    "a gradient that is another one": (
        [("second", 0, 0), ("relu", 0, 0)],
        {"relu": "replace = 'relu(x)'\nwith = 'aten::relu(aten::detach(x))'"},
        "",
        "gradient of",
    ),
    "strides that are others": (
        [("silu", 0, 0)],
        {"silu": "replace = 'silu(x)'\nwith = 't = aten::contiguous(transpose(silu(x), 0, 1)); "
         "transpose(t, 0, 1)'"},
        "difference",
        "strides",
    ),
    "a view that is copied though it is written to later": (
        [("alias", 0, 0), ("increment_", 0, 0), ("increment", 2, 0)],
        {"alias": ""},
        "_later",
        "",
    ),
    "a copy that becomes a view though it is written to later": (
        [("clone", 0, 0), ("increment_", 0, 0), ("increment", 2, 0)],
        {"clone": ""},
        "changed_later",
        "",
    ),
    "a change in place that others see": (
        [("clone", 0, 0), ("t", 0, 0), ("relu_", 1, 0), ("increment", 1, 0)],
        {"relu": ""},
        "_own",
        "",
    ),
    "a reader that moves behind a change": (
        [("clone", 1, 0), ("relu", 3, 0), ("add", 0, 1), ("double_", 2, 0), ("half", 6, 0),
         ("sigmoid", 0, 0)],
        {"two roots": ""},
        "blocked",
        "",
    ),
    "a result that the next call changes": (
        [("increment_", 2, 0), ("clone", 0, 0)],
        {"clone": ""},
        "_held",
        "call 0",
    ),
}  # fmt: skip
"""Steps, rules (as they are, or wrong ones), the check that is switched off, what is found."""


@pytest.mark.parametrize("name", sorted(PLANTED))
@in_child()
def test_planted_faults_are_found(name):
    from programs_random import RULES, drawn, faults

    from oprep.converters.programs import conversion, rewrite
    from oprep.converters.programs.aliases import Aliases

    steps, rules, off, said = PLANTED[name]
    programs = [made for made in (drawn(steps, [i], 0) for i in range(6)) if made is not None]
    texts = {key: text or RULES[key] for key, text in rules.items()}

    def found():
        return [told for told, _ in (faults(item, list(texts), texts) for item in programs) if told]

    if not off:
        assert any(said in item for item in found())
        return
    assert not found()
    owner = {"blocked": conversion, "difference": rewrite}.get(off, Aliases)
    kept = getattr(owner, off)
    setattr(owner, off, lambda *unused: {"difference": None, "_held": False}.get(off, ""))
    try:
        assert any(said in item for item in found()), found()
    finally:
        setattr(owner, off, kept)
