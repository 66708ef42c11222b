"""Openings of small programs for tests of the proof in real child processes."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any

import torch

from oprep.converters.programs.subject import Subject

WIDTHS = {"crash": 3, "hang": 5}
"""The last dim of what the second and third site give; those alone are struck."""


def _body(kind: str, x: torch.Tensor) -> torch.Tensor:
    if "crash" in kind and x.shape[-1] == WIDTHS["crash"]:
        os.abort()
    if "hang" in kind and x.shape[-1] == WIDTHS["hang"]:
        time.sleep(600)
    return x.relu()


def _register(kind: str) -> None:
    if hasattr(torch.ops.opening, kind):
        return
    made = torch.library.custom_op(f"opening::{kind}", lambda x: _body(kind, x), mutates_args=(),
                                   schema="(Tensor x) -> Tensor")  # fmt: skip
    made.register_fake(torch.empty_like)


class Three(torch.nn.Module):
    """Three sites of one rule, with different shapes."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(4, 2), torch.nn.Linear(2, 3)
        self.third = torch.nn.Linear(3, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.third(torch.relu(self.second(torch.relu(self.first(x))))))


def _both(payload: Mapping[str, Any]) -> tuple[Subject, Any]:
    from proven import program, rule, subject

    _register(payload["kind"])
    torch.manual_seed(0)
    name = f"opening::{payload['kind']}"
    return subject(program(Three(), (torch.randn(5, 4),)), rule("relu(x)", f"{name}(x)"), (name,))


def original(payload: Mapping[str, Any], say: Any) -> Subject:
    """Give the original, and its sites unless there are to be none."""
    held = _both(payload)[0]
    return held if payload["sites"] else Subject(held.program)


def artifact(payload: Mapping[str, Any], say: Any) -> Any:
    """Give the converted program; with `sites`, raise."""
    if payload["sites"]:
        raise RuntimeError("failed to resolve acme.gelu to an operator")
    return _both(payload)[1]
