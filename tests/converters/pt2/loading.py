"""Load archives where torch is, and compare what they compute."""

from __future__ import annotations

import io
import logging
from collections.abc import Mapping
from typing import Any


def compare(pairs: Mapping[str, Any]) -> dict[str, list[str]]:
    """Load two archives of each name; say what differs between them."""
    import torch
    from corpus.pt2_models import register

    register()
    logging.disable(logging.CRITICAL)
    try:
        return {name: _differences(torch, *pair) for name, pair in pairs.items()}
    finally:
        logging.disable(logging.NOTSET)


def _differences(torch: Any, one: Any, other: Any) -> list[str]:
    from torch.utils import _pytree as pytree

    extra = {"oprep.json": ""}
    first = torch.export.load(io.BytesIO(one.tobytes()))
    second = torch.export.load(io.BytesIO(other.tobytes()), extra_files=extra)
    found = [] if extra["oprep.json"] == '{"a": 1}' else ["extra file"]
    found += [] if list(first.state_dict) == list(second.state_dict) else ["state dict"]
    for key, value in first.state_dict.items():
        if not torch.equal(value, second.state_dict[key]):
            found.append(key)
    results = []
    for program in (first, second):
        args, kwargs = program.example_inputs
        torch.manual_seed(0)
        results.append(pytree.tree_leaves(program.module()(*args, **kwargs)))
    for a, b in zip(*results, strict=True):
        same = torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b
        found += [] if same else ["output"]
    stacks = [[node.meta.get("nn_module_stack") for node in p.graph.nodes] for p in (first, second)]
    found += [] if stacks[0] == stacks[1] else ["module stack"]
    torch.export.save(second, io.BytesIO())
    return found
