"""Keep torch's compile caches honest: they know an op by its name, not by its definition."""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Iterable

import torch
import torch.compiler.config

_OURS = re.compile(r"\|?oprep:[0-9a-f]{64}$")


def tag(definitions: Iterable[str]) -> None:
    """Let the caches on disk tell these definitions from others; a tag of the user's stays."""
    words = "\n".join(sorted(definitions))
    kept = _OURS.sub("", torch.compiler.config.cache_key_tag)
    own = f"oprep:{hashlib.sha256(words.encode()).hexdigest()}"
    torch.compiler.config.cache_key_tag = f"{kept}|{own}" if kept else own


def forget() -> None:
    """Let everything that was compiled in this process be compiled anew at its next call."""
    if "torch._dynamo" in sys.modules:
        torch.compiler.reset()
