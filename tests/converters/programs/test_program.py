"""The record of a captured program, and the child in which tests of torch run."""

from __future__ import annotations

import os

import pytest
from torch_child import call, in_child


@in_child()
def test_a_program_keeps_what_was_exported():
    import torch

    from oprep.converters.programs.program import Example, Program

    exported = torch.export.export(torch.nn.GELU(), (torch.ones(2),))
    example = Example("given", (torch.ones(2),))
    program = Program(exported, "model", "object", "export", (example,))
    assert program.exported is exported
    assert program.examples[0].kwargs == {}


@in_child()
def test_the_child_is_another_process():
    assert "OPREP_CHILD" in os.environ


def test_a_test_that_fails_in_the_child_fails_here():
    with pytest.raises(pytest.fail.Exception, match="AssertionError"):
        call(__file__, "wrong", {}, 60)


def wrong():
    assert 1 + 1 == 3
