"""Load a state dict into a module: every tensor of both sides must find its partner.

A checkpoint may hold the state dict under a key. A key that is named wins; else the one
well-known key that holds a dict of tensors is taken, and the report says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import IO, Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from oprep.converters.program_source import Weights
from oprep.converters.programs.tensors import dtype_name
from oprep.converters.programs.user_code import told
from oprep.converters.reading import as_stream
from oprep.opsets.errors import ExitCode, OprepError

KEYS = ("state_dict", "model_state_dict", "model", "module", "net", "network", "weights", "params")
"""Where checkpoints keep a state dict; where two of them do, the user has to name one."""

PREFIXES = ("module.", "_orig_mod.", "model.")
"""What wrappers (data parallel, compile, trainers) put before every name."""

LISTED = 4


def load_weights(module: nn.Module, weights: Weights) -> tuple[str, ...]:
    """Load a state dict strictly into a module that is ours; give what the report should say."""
    state, key = _picked(_loaded(weights), weights)
    notes = [f"`{weights.name}`: the state dict is `{key}`"] if key and not weights.key else []
    state, prefix = _without_prefix(state, set(module.state_dict()))
    notes += [f"`{weights.name}`: `{prefix}` was left out of every name"] if prefix else []
    _require_all(module, state, weights.name)
    notes += _converted(module, state, weights.name)
    meta = any(tensor.is_meta for tensor in module.state_dict(keep_vars=True).values())
    try:
        module.load_state_dict(state, strict=False, assign=meta)
    except (RuntimeError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise _refused("cannot be loaded", weights.name, (told(error),)) from error
    return tuple(notes)


def _loaded(weights: Weights) -> Any:
    content = weights.content
    if not content.read_at(0, min(2, content.size)).startswith((b"PK", b"\x80")):
        from safetensors import SafetensorError
        from safetensors.torch import load

        try:
            return load(content.read_at(0, content.size))
        except SafetensorError as error:
            raise _refused("is damaged", weights.name, (told(error),)) from error
    stream = as_stream(content, 0, content.size)
    return load_data(stream, weights.name, trusted=weights.trusted)


def load_data(data: IO[bytes], name: str, *, trusted: bool = False) -> Any:
    """Load what `torch.save` wrote; unless it is trusted, nothing in it is run."""
    try:
        return torch.load(data, map_location="cpu", weights_only=not trusted)
    except Exception as error:  # the bytes decide what is raised; torch's own text advises
        raise _refused("cannot be read as plain tensors", name, (_cause(error),)) from error


def _cause(error: Exception) -> str:
    """Say what is wrong without the advice to load the file unsafely."""
    lines = [line.strip() for line in str(error).splitlines()]
    telling = [line for line in lines if line.startswith(("Unsupported", "WeightsUnpickler error"))]
    text = telling[0] if telling else told(error)
    return text.removeprefix("WeightsUnpickler error: ").partition(" Please ")[0][:200]


def _picked(loaded: Any, weights: Weights) -> tuple[dict[str, Tensor], str]:
    if weights.key:
        return _at_key(loaded, weights), weights.key
    if _is_state(loaded):
        return dict(loaded), ""
    if isinstance(loaded, Mapping):
        held = [key for key in KEYS if _is_state(loaded.get(key))]
        if len(held) == 1:
            return dict(loaded[held[0]]), held[0]
        states = held or [str(key) for key in loaded if _is_state(loaded[key])]
        raise _refused(
            "holds more than one state dict" if states else "holds no state dict",
            weights.name,
            (f"its keys are {_listed([str(key) for key in loaded])}",),
            f"name the key, as `{weights.name}:{states[0]}`" if states else "",
        )
    raise _refused(f"holds a `{type(loaded).__name__}`, not a state dict", weights.name)


def _at_key(loaded: Any, weights: Weights) -> dict[str, Tensor]:
    """Follow `model.state`; a key that itself has dots is tried first."""
    found, rest, behind = loaded, weights.key, ""
    while rest:
        parts = rest.split(".")
        ends = range(len(parts), 0, -1)
        keys = [".".join(parts[:end]) for end in ends]
        key = next((k for k in keys if isinstance(found, Mapping) and k in found), None)
        if key is None:
            known = [str(k) for k in found] if isinstance(found, Mapping) else []
            inside = f"`{behind}`" if behind else "the file"
            note = f"{inside} has {_listed(known)}" if known else f"{inside} has no keys"
            raise _refused(f"has no key `{weights.key}`", weights.name, (note,))
        found, rest, behind = found[key], rest[len(key) + 1 :], f"{behind}.{key}".strip(".")
    if not _is_state(found):
        raise _refused(
            f"holds no state dict under `{weights.key}`",
            weights.name,
            (f"a `{type(found).__name__}` is there",),
        )
    return dict(found)


def _is_state(value: Any) -> bool:
    if not isinstance(value, Mapping) or not value:
        return False
    kept = [item for key, item in value.items() if not str(key).endswith("_extra_state")]
    return all(isinstance(item, Tensor) for item in kept) and all(
        isinstance(key, str) for key in value
    )


def _without_prefix(state: dict[str, Tensor], wanted: set[str]) -> tuple[dict[str, Tensor], str]:
    """Leave out a wrapper's prefix where all names have it and the module knows the rest."""
    for prefix in PREFIXES:
        if all(name.startswith(prefix) for name in state) and not wanted & set(state):
            shorter = {name[len(prefix) :]: tensor for name, tensor in state.items()}
            if wanted & set(shorter):
                return shorter, prefix
    return state, ""


def _require_all(module: nn.Module, state: Mapping[str, Any], name: str) -> None:
    own = module.state_dict(keep_vars=True)
    missing = [key for key in own if key not in state and not _tied(key, own, state)]
    unexpected = [key for key in state if key not in own]
    facts = [f"the file lacks {_listed(missing)}"] if missing else []
    facts += [f"the module has no {_listed(unexpected)}"] if unexpected else []
    if facts:
        raise _refused("does not fit the module", name, tuple(facts))
    wrong = [
        f"`{key}`: the module has {list(own[key].shape)}, the file {list(tensor.shape)}"
        for key, tensor in state.items()
        if isinstance(tensor, Tensor)
        and isinstance(own[key], Tensor)
        and not is_lazy(own[key])
        and own[key].shape != tensor.shape
    ]
    if wrong:
        more = (f"{len(wrong) - 2} more tensors differ",) if len(wrong) > 2 else ()
        raise _refused("does not fit the module", name, (*wrong[:2], *more))


def _tied(key: str, own: Mapping[str, Any], state: Mapping[str, Any]) -> bool:
    """Tell whether the tensor of a missing name comes under another name, as safetensors does."""
    return any(other in state and own[other] is own[key] for other in own if other != key)


def _converted(module: nn.Module, state: Mapping[str, Any], name: str) -> list[str]:
    own = module.state_dict(keep_vars=True)
    pairs = {
        (dtype_name(tensor.dtype), dtype_name(own[key].dtype))
        for key, tensor in state.items()
        if isinstance(tensor, Tensor)
    }
    return [
        f"`{name}`: {theirs} values were converted to the module's {ours}"
        for theirs, ours in sorted(pairs)
        if theirs != ours
    ]


def _listed(names: list[str]) -> str:
    shown = ", ".join(f"`{name}`" for name in names[:LISTED])
    return shown + (f" and {len(names) - LISTED} more" if len(names) > LISTED else "")


def _refused(fact: str, name: str, notes: tuple[str, ...] = (), help: str = "") -> OprepError:
    return OprepError(
        f"`{name}` {fact}", where=name, notes=notes, help=help, exit_code=ExitCode.MODEL
    )
