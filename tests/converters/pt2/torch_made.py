"""Files of torch that are no archives of programs, made in the child."""

from __future__ import annotations

import io
import pickle
from collections import OrderedDict
from typing import Any


def build() -> dict[str, Any]:
    """Save one file of each kind; give the bytes as arrays."""
    import numpy as np
    import torch
    from torch import nn

    model = nn.Sequential(nn.Linear(2, 3), nn.GELU())
    state = model.state_dict()
    checkpoint = {
        "model": state, "step": 3, "lr": 1e-3, "name": "x", "best": None, "sizes": (1, 2),
        "tags": {"a", "b"}, "optimizer": torch.optim.Adam(model.parameters()).state_dict(),
        "half": torch.ones(2, dtype=torch.bfloat16), "parameter": model[0].weight,
        "long": 1 << 70, "true": True, "raw": b"bytes", "dtype": torch.float16,
    }  # fmt: skip
    scripted = torch.jit.script(nn.ReLU())
    files = {
        "state": saved(state),
        "state_old": saved(state, old=True),
        "checkpoint": saved(checkpoint),
        "checkpoint_old": saved(checkpoint, old=True),
        "module": saved(model),
        "module_old": saved(model, old=True),
        "function": saved({"weights": torch.ones(2), "f": len}),
        "function_old": saved(OrderedDict(f=len), old=True),
        "plain_pickle": pickle.dumps(OrderedDict(model=model)),
        "numbers_pickle": pickle.dumps({"a": [1, 2.5, "x"]}),
    }
    buffer = io.BytesIO()
    torch.jit.save(scripted, buffer)
    files["torchscript"] = buffer.getvalue()
    return {name: np.frombuffer(data, np.uint8) for name, data in files.items()}


def saved(value: Any, *, old: bool = False) -> bytes:
    import torch

    buffer = io.BytesIO()
    torch.save(value, buffer, _use_new_zipfile_serialization=not old)
    return buffer.getvalue()


def loads(data: Any) -> list[str]:
    """Load a file by the weights-only loader; give the keys."""
    import torch

    return sorted(torch.load(io.BytesIO(data.tobytes()), weights_only=True))
