"""What the tests of capturing share: files of a model's code, and the refusal of a capture."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from oprep.opsets.errors import ExitCode, OprepError

NET = """
import torch
from torch import nn
from sibling import SCALE


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)
        self.last = nn.Linear(4, 4)
        self.last.weight = self.first.weight

    def forward(self, x):
        return torch.relu(self.last(self.norm(self.first(x)))) * SCALE


def build():
    torch.manual_seed(0)
    return Net()


def example_inputs():
    return torch.ones(3, 4)
"""


def folder(files: dict[str, str] | None = None) -> Path:
    """Write `model.py` (NET), its sibling and more files into a new folder."""
    made = Path(tempfile.mkdtemp())
    for name, text in {"model.py": NET, "sibling.py": "SCALE = 2.0\n", **(files or {})}.items():
        (made / name).write_text(text)
    return made


def refusal(call: Callable[..., Any], *args: Any, **options: Any) -> OprepError:
    """Give the error that a call ends with; it must be one for users, with words for them."""
    with pytest.raises(OprepError) as caught:
        call(*args, **options)
    error = caught.value
    assert error.exit_code is not ExitCode.INTERNAL
    text = str(error)
    assert "Traceback" not in text
    assert len(text) < 4096
    assert error.message[:1].islower() or error.message.startswith("`")
    assert not error.message.endswith(".")
    assert len(error.notes) <= 3
    return error
