"""Run a program as its caller would, each time on a fresh copy of its parameters and buffers.

`ExportedProgram.module()` shares its tensors with the program: a run would change buffers of what
is to be written. So no run here touches them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from oprep.converters.programs.written import may_be_written

SINGLE = "result"
"""What the only output is called where a program gives a tensor and no container."""


@dataclass(frozen=True)
class Ran:
    """What a run gave: outputs and state afterwards by name, gradients where they were asked for.

    `gradients` has None where no gradient arrived; `random` tells where the generator stood.
    """

    outputs: Mapping[str, Any]
    state: Mapping[str, Tensor]
    gradients: Mapping[str, Tensor | None] = field(default_factory=dict)
    random: bytes = b""


@dataclass(frozen=True)
class Setting:
    """How to run: seed of the generator, threads, whether oneDNN may be used.

    `aside` moves what asks for a gradient by this part of it, up or down.
    """

    seed: int = 0
    threads: int = 1
    onednn: bool = True
    aside: float = 0.0


class Runner:
    """A program that can be run again and again, always from the same state."""

    def __init__(self, exported: ExportedProgram) -> None:
        """Keep a program; nothing is changed in it, and nothing runs yet."""
        self.exported = exported

    @cached_property
    def module(self) -> torch.nn.Module:
        """What a caller gets; it shares its tensors with the program and never runs on them."""
        return self.exported.module()

    @cached_property
    def input_names(self) -> tuple[str, ...]:
        """The names of the flat inputs, those that are no tensors included."""
        names = self.exported.graph_signature.user_inputs
        specs = self.exported.graph_signature.input_specs
        found = [getattr(spec.arg, "name", "") for spec in specs if spec.kind.name == "USER_INPUT"]
        return tuple(found) if len(found) >= len(names) else tuple(map(str, names))

    def fresh_state(self, *, moved: bool = False) -> dict[str, Tensor]:
        """Give what the program holds, by name, copied where a run may change it.

        Tensors that are one stay one. With `moved` all are copied.
        """
        copies: dict[Any, Tensor] = {}
        return {
            name: _of_its_own(tensor, copies, copied=moved or name in self._written)
            for name, tensor in self.held().items()
        }

    @cached_property
    def _written(self) -> frozenset[str]:
        return may_be_written(self.exported)

    def held(self) -> dict[str, Tensor]:
        """Give the tensors that the program holds, by name: to be read only."""
        held = dict(self.exported.state_dict)
        return held | {k: v for k, v in self.exported.constants.items() if isinstance(v, Tensor)}

    def run(self, leaves: Sequence[Any], setting: Setting, *, gradients: bool = False) -> Ran:
        """Run on flat inputs; with `gradients` go back from seeded cotangents to all that asks."""
        with in_setting(setting), torch.set_grad_enabled(gradients), self._constants_kept():
            held = self.fresh_state(moved=bool(setting.aside))
            state = {k: v for k, v in held.items() if k in self._owned}
            starts = [started(item, gradients) for item in leaves]
            named = dict(zip(self.input_names, starts, strict=True))
            asking = wanted(named, state)
            if setting.aside:
                move_aside(asking.values(), setting)
            args, kwargs = pytree.tree_unflatten(
                [passed_on(item) for item in starts], self.exported.call_spec.in_spec
            )
            made = torch.func.functional_call(self.module, state, args, kwargs)
            outputs = named_outputs(made)
            found: dict[str, Tensor | None] = {}
            if gradients:
                found = back(outputs, asking, setting.seed)
            drawn = torch.random.get_rng_state().numpy().tobytes()
        kept = {k: v.detach() for k, v in state.items() if k not in self.parameters}
        return Ran(_detached(outputs), kept, found, drawn)

    @cached_property
    def parameters(self) -> frozenset[str]:
        """The names of the parameters."""
        return frozenset(name for name, _ in self.module.named_parameters(remove_duplicate=False))

    @cached_property
    def _owned(self) -> frozenset[str]:
        """The names that the module holds as parameters or buffers."""
        buffers = self.module.named_buffers(remove_duplicate=False)
        return self.parameters | {name for name, _ in buffers}

    @contextmanager
    def _constants_kept(self) -> Iterator[None]:
        """Undo what a run does to constant tensors, which the module does not let be swapped."""
        held = self.exported.constants.items()
        loose = {k: v for k, v in held if isinstance(v, Tensor) and k not in self._owned}
        before = {name: (tensor._version, tensor.clone()) for name, tensor in loose.items()}
        try:
            yield
        finally:
            for name, (version, content) in before.items():
                if loose[name]._version != version:
                    with torch.no_grad():
                        loose[name].copy_(content)


@contextmanager
def in_setting(setting: Setting) -> Iterator[None]:
    """Seed and set threads for a block, and put back what was."""
    threads, state = torch.get_num_threads(), torch.random.get_rng_state()
    onednn = torch._C._get_mkldnn_enabled()
    try:
        torch.set_num_threads(setting.threads)
        torch.random.manual_seed(setting.seed)
        torch._C._set_mkldnn_enabled(setting.onednn)
        yield
    finally:
        torch._C._set_mkldnn_enabled(onednn)
        torch.set_num_threads(threads)
        torch.random.set_rng_state(state)


def move_aside(starts: Iterable[Tensor], setting: Setting) -> None:
    """Move values by the part that a setting says, where they can be written to."""
    with torch.no_grad():
        for number, start in enumerate(starts):
            with suppress(RuntimeError):  # repeated elements cannot be written to
                start.copy_(aside(start, setting.aside, setting.seed + number))


def _of_its_own(tensor: Tensor, known: dict[Any, Tensor], *, copied: bool) -> Tensor:
    """Give a tensor with a place of its own in the autograd graph; its memory, or a copy."""
    key: Any = (tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype)
    key = key if tensor.numel() else id(tensor)
    if key not in known:
        made = tensor.detach().clone() if copied else tensor.detach()
        known[key] = made.requires_grad_(tensor.requires_grad)
    return known[key]


def started(item: Any, gradients: bool) -> Any:
    """Give a leaf of the autograd graph for an input of floating dtype."""
    if not isinstance(item, Tensor):
        return item
    start = snapshot(item)
    return start.requires_grad_(gradients and differentiable(start))


def passed_on(item: Any) -> Any:
    """Pass what may be changed in place: a leaf that asks for a gradient may not."""
    return fresh(item) if isinstance(item, Tensor) and item.requires_grad else item


def differentiable(tensor: Tensor) -> bool:
    """Tell whether a tensor can have a gradient by its dtype."""
    return tensor.is_floating_point() or tensor.is_complex()


def snapshot(tensor: Tensor) -> Tensor:
    """Copy a tensor out of all graphs, with its strides."""
    return fresh(tensor.detach())


def fresh(tensor: Tensor) -> Tensor:
    """Copy a tensor within the autograd graph, with its strides; repeated elements stay so."""
    narrow = tensor
    for dim, step in enumerate(tensor.stride()):
        if not step and tensor.shape[dim] > 1:
            narrow = narrow.narrow(dim, 0, 1)
    copy = narrow.clone()
    if not same_strides(copy, narrow):
        with suppress(RuntimeError):  # windows that overlap cannot be written to
            blank = torch.empty_strided(narrow.size(), narrow.stride(), dtype=narrow.dtype)
            copy = blank.copy_(narrow)
    return copy if narrow is tensor else copy.expand(tensor.shape)


def same_strides(left: Tensor, right: Tensor) -> bool:
    """Tell whether two tensors of one shape lie alike in memory, where it can be seen."""
    sizes = zip(left.shape, left.stride(), right.stride(), strict=True)
    return not left.numel() or all(one == other for size, one, other in sizes if size > 1)


def named_outputs(made: Any) -> dict[str, Any]:
    """Name what a program gives by its place: `logits`, `past.0`, or `result`."""
    paths, _ = pytree.tree_flatten_with_path(made)
    return {_joined(path): value for path, value in paths}


def _joined(path: Sequence[Any]) -> str:
    steps = []
    for step in path:
        key = getattr(step, "key", getattr(step, "idx", getattr(step, "name", step)))
        steps.append(str(key))
    return ".".join(steps) or SINGLE


def _detached(outputs: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v.detach() if isinstance(v, Tensor) else v for k, v in outputs.items()}


def wanted(inputs: Mapping[str, Any], state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Name what a gradient is to reach: floating inputs, and state that asks for one."""
    found = {f"input {k}": v for k, v in inputs.items() if _asks(v)}
    return found | {k: v for k, v in state.items() if _asks(v)}


def _asks(value: Any) -> bool:
    return isinstance(value, Tensor) and value.requires_grad


def cotangents(outputs: Mapping[str, Any], seed: int) -> list[tuple[Tensor, Tensor]]:
    """Draw for each output that has a gradient what is to go back from it, the same every time."""
    found = []
    for number, value in enumerate(outputs.values()):
        if isinstance(value, Tensor) and value.requires_grad:
            found.append((value, drawn_like(value, seed + number)))
    return found


def drawn_like(tensor: Tensor, seed: int) -> Tensor:
    """Draw normal numbers of a tensor's shape and dtype from a seed, whatever was drawn before."""
    generator = torch.Generator().manual_seed(seed)
    wide = torch.complex128 if tensor.is_complex() else torch.float64
    return torch.randn(tensor.shape, dtype=wide, generator=generator).to(tensor.dtype)


STEPS_ASIDE = 8
"""By how many units in the last place values are moved to find kinks and noise, at least."""


def aside(tensor: Tensor, move: float, seed: int) -> Tensor:
    """Move every element by a part `move` of it or more, each in a direction of its own."""
    info = torch.finfo(tensor.dtype)
    step = math.copysign(max(abs(move), STEPS_ASIDE * info.eps), move)
    sign = torch.sign(drawn_like(tensor.detach().real, seed))
    size = tensor.detach().abs().clamp(min=info.tiny / info.eps)
    return tensor + (step * sign * size).to(tensor.dtype)


def back(
    outputs: Mapping[str, Any], starts: Mapping[str, Tensor], seed: int
) -> dict[str, Tensor | None]:
    """Go back from seeded cotangents; None where no gradient arrives."""
    pairs = cotangents(outputs, seed)
    if not pairs or not starts:
        return dict.fromkeys(starts)
    found = torch.autograd.grad(
        [value for value, _ in pairs],
        list(starts.values()),
        [cotangent for _, cotangent in pairs],
        allow_unused=True,
    )
    return {k: None if g is None else g.detach() for k, g in zip(starts, found, strict=True)}
