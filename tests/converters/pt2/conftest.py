"""Archives made by torch in the child, once for all tests of this folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from torch_child import TESTS, call

MODELS = str(TESTS / "corpus" / "pt2_models.py")
FILES = str(Path(__file__).with_name("torch_made.py"))


@pytest.fixture(scope="session")
def archives() -> Mapping[str, bytes]:
    """Give the bytes of every model of `corpus.pt2_models`."""
    return {name: data.tobytes() for name, data in call(MODELS, "build", {}, 120).items()}


@pytest.fixture(scope="session")
def saved() -> Mapping[str, bytes]:
    """Give files of `torch.save` and `torch.jit.save`, by what they hold."""
    return {name: data.tobytes() for name, data in call(FILES, "build", {}, 120).items()}
