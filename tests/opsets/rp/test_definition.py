"""The hash of a definition: equal in two processes, another one for whatever computes another."""

from __future__ import annotations

import pytest
from torch_child import call, in_child

START = """
import torch, functools, dataclasses, config
FACTOR = 3
TABLE = {"a": [1, 2.5]}
WEIGHT = torch.arange(3.0)

@dataclasses.dataclass(frozen=True)
class Setting:
    scale: float = 2.0

SETTING = Setting()

class Base:
    @staticmethod
    def shift(x):
        return x + 1

def helper(x, k=4):
    def inner(y):
        return y * FACTOR * SETTING.scale
    return inner(x) + TABLE["a"][1] * k + config.OFFSET

def made(power):
    class Op(Base):
        @staticmethod
        def forward(ctx, x):
            return helper(x) ** power + WEIGHT + Base.shift(x) + functools.partial(max, 7)(x)
        @staticmethod
        def backward(ctx, grad):
            return grad * {1, 5, 9}.pop()
    return Op
"""
CHANGES = [
    ("FACTOR = 3", "FACTOR = 4"),
    ('"a": [1, 2.5]', '"a": [1, 2.6]'),
    ("arange(3.0)", "arange(1, 4.0)"),
    ("scale: float = 2.0", "scale: float = 2.5"),
    ("return x + 1", "return x + 2"),
    ("k=4", "k=5"),
    ("y * FACTOR", "y + FACTOR"),
    ("(max, 7)", "(max, 8)"),
    ("(max, 7)", "(min, 7)"),
    ("1, 5, 9", "1, 5, 8"),
    ("return grad *", "return -grad *"),
]


def hash_of(text, power=2, offset=1):
    """Give the hash of the class of a module's text."""
    import sys
    from types import ModuleType

    from oprep.opsets.rp.digest import definition_hash

    config = ModuleType("config")
    config.OFFSET, config.OTHER = offset, object()
    sys.modules["config"] = config
    made_up = sys.modules["made_up"] = ModuleType("made_up")
    exec(text, vars(made_up))
    return definition_hash(made_up.made(power))


@in_child()
def test_the_same_text_has_the_same_hash_and_a_comment_changes_nothing():
    assert hash_of(START) == hash_of(START)
    assert hash_of(START) == hash_of("# a comment\n\n" + START)


@in_child()
@pytest.mark.parametrize(("old", "new"), CHANGES)
def test_a_change_of_whatever_the_code_reaches_changes_the_hash(old, new):
    assert old in START
    assert hash_of(START) != hash_of(START.replace(old, new))


@in_child()
def test_closures_and_other_modules_count():
    assert hash_of(START) != hash_of(START, power=3)
    assert hash_of(START) != hash_of(START, offset=2)


def test_two_processes_agree():
    found = [call(__file__, "own_hash", {}, 60, fresh=True) for _ in range(2)]
    assert found[0] == found[1]


def own_hash():
    """Give the hashes of classes with everything that could hold an address."""
    from rp_examples import Mask, Pair, Seven

    from oprep.opsets.rp.digest import definition_hash

    return [hash_of(START), *(definition_hash(cls) for cls in (Seven, Pair, Mask))]


@in_child()
def test_what_cannot_be_read_is_never_taken_for_something_else():
    import threading

    from oprep.opsets.rp.digest import definition_hash

    one, other = threading.Lock(), threading.Lock()
    assert definition_hash(one) == definition_hash(one)
    assert definition_hash(one) != definition_hash(other)


@in_child()
def test_values_that_print_alike_are_told_apart():
    import torch

    from oprep.opsets.rp.digest import definition_hash

    values = [
        *(1, 1.0, True, "1", b"1", None, "None", (1,), [1], {1}, {1: 1}, ((1,),), (1, 1)),
        *(torch.tensor(1), torch.tensor(1.0), torch.tensor([1]), torch.float32, "torch.float32"),
        *(len, max, int, str, ["ab", "c"], ["a", "bc"], [[], 1], [[1]]),
    ]
    hashes = [definition_hash(value) for value in values]
    assert len(set(hashes)) == len(values)


@in_child()
def test_registering_sets_the_cache_tag_and_keeps_the_user_s_own():
    import torch
    from rp_examples import Double

    import oprep

    torch.compiler.config.cache_key_tag = "mine"
    oprep.register_autograd("rp_test::tagged", Double)
    first = torch.compiler.config.cache_key_tag
    assert first.startswith("mine|oprep:")
    with oprep.register_composite("rp_test::tagged", Double):
        assert torch.compiler.config.cache_key_tag != first
        assert torch.compiler.config.cache_key_tag.count("oprep:") == 1
    assert torch.compiler.config.cache_key_tag == first
    torch.compiler.config.cache_key_tag = ""
    oprep.register_autograd("rp_test::tagged_more", Double)
    assert torch.compiler.config.cache_key_tag.startswith("oprep:")
