"""How a dispatcher op is called: which arguments are tensors, which are plain, what it writes to.

The arguments of an fx node are brought into one form: all by name, defaults left out or not, the
tensors in a row. A list of tensors that is the only one comes last in the row, its items one by
one; where an op takes several lists, each is one value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

TENSOR, OPTIONAL, LIST, PLAIN = "tensor", "optional", "tensors", "plain"

HIDDEN_WRITES: Mapping[str, tuple[tuple[str, ...], str]] = {
    "aten::batch_norm": (("running_mean", "running_var"), "training"),
    "aten::instance_norm": (("running_mean", "running_var"), "use_input_stats"),
    "aten::native_batch_norm": (("running_mean", "running_var"), "training"),
    "aten::cudnn_batch_norm": (("running_mean", "running_var"), "training"),
}
"""Ops that write to arguments without saying so in their schema, where a flag is set (read in
the native implementations: they update the running statistics in training)."""

PASSES_THROUGH = frozenset({
    "aten::dropout", "aten::feature_dropout", "aten::alpha_dropout", "aten::feature_alpha_dropout",
    "aten::lift_fresh", "aten::pad", "aten::type_as", "aten::sum_to_size", "aten::conj_physical",
    "aten::einsum", "aten::atleast_1d", "aten::atleast_2d", "aten::atleast_3d",
    "aten::unsafe_chunk", "aten::unsafe_split", "aten::unsafe_split_with_sizes",
    "aten::_unsafe_view", "aten::cartesian_prod", "aten::meshgrid", "aten::broadcast_tensors",
    "aten::align_tensors", "aten::chain_matmul", "aten::channel_shuffle", "aten::pixel_shuffle",
    "aten::pixel_unshuffle", "aten::_cast_Byte", "aten::_cast_Char", "aten::_cast_Double",
    "aten::_cast_Float", "aten::_cast_Half", "aten::_cast_Int", "aten::_cast_Long",
    "aten::_cast_Short", "aten::_pack_sequence", "aten::_saturate_weight_to_fp16", "aten::_to_cpu",
    "aten::data", "aten::lift", "aten::flatten_dense_tensors",
})  # fmt: skip
"""Ops that may give an input itself or a view of it, without saying so in their schema."""


@dataclass(frozen=True, slots=True)
class Formal:
    """One argument of a schema. `kind` is a tensor, an optional one, a list of them, or plain.

    `default` is None where there is none, too; `required` tells the two apart. `writes` says that
    the op changes it, `aliases` names the sets of values it may share memory with. `number` says
    that any number may stand there (`Scalar`).
    """

    name: str
    kind: str
    required: bool
    default: Any
    writes: bool
    aliases: frozenset[str]
    keyword: bool
    number: bool = False


@dataclass(frozen=True, slots=True)
class Layout:
    """The arguments of one overload, and what its results may share memory with.

    `row` lists the tensor arguments in the order of a node's inputs; `spread` is the one whose
    items stand at the end of it one by one.
    """

    key: str
    formals: tuple[Formal, ...]
    row: tuple[Formal, ...]
    spread: str
    results: tuple[frozenset[str], ...]
    random: bool

    def formal(self, name: str) -> Formal | None:
        """Give the argument of a name."""
        return next((item for item in self.formals if item.name == name), None)


def key_of(op: torch._ops.OpOverload) -> str:
    """Print an op as every message does: `aten::gelu`, `aten::add.Tensor`."""
    name = op._schema.name
    return name if op._overloadname == "default" else f"{name}.{op._overloadname}"


@cache
def layout_of(op: torch._ops.OpOverload) -> Layout:
    """Read the schema of an overload."""
    schema = op._schema
    formals = tuple(_formal(argument) for argument in schema.arguments)
    lists = [item for item in formals if item.kind == LIST]
    spread = lists[0].name if len(lists) == 1 else ""
    row = [item for item in formals if item.kind != PLAIN and item.name != spread]
    row += [item for item in formals if item.name == spread and spread]
    results = tuple(_aliases(item) or _in_list(item, schema.arguments) for item in schema.returns)
    random = torch.Tag.nondeterministic_seeded in op.tags
    return Layout(key_of(op), formals, tuple(row), spread, results, random)


def _formal(argument: Any) -> Formal:
    text = str(argument.type)
    kind = PLAIN
    if text == "Tensor":
        kind = TENSOR
    elif text == "Optional[Tensor]":
        kind = OPTIONAL
    elif text in ("List[Tensor]", "List[Optional[Tensor]]"):
        kind = LIST
    written = argument.alias_info is not None and argument.alias_info.is_write
    return Formal(
        argument.name,
        kind,
        not argument.has_default_value(),
        plain(argument.default_value) if argument.has_default_value() else None,
        written,
        _aliases(argument),
        argument.kwarg_only,
        text in ("number", "Optional[number]", "Scalar", "Optional[Scalar]"),
    )


def _aliases(item: Any) -> frozenset[str]:
    info = item.alias_info
    return frozenset() if info is None else frozenset(info.before_set) | frozenset(info.after_set)


def _in_list(result: Any, arguments: Sequence[Any]) -> frozenset[str]:
    """Give the sets that a list of views shares: `Tensor(a -> *)` says so, the list does not."""
    if str(result.type) != "List[Tensor]":
        return frozenset()
    spread = [item for item in arguments if item.alias_info and "*" in item.alias_info.after_set]
    return frozenset(name for item in spread for name in item.alias_info.before_set)


def named_arguments(layout: Layout, node: torch.fx.Node) -> dict[str, Any]:
    """Give the arguments of a call that are written, by name."""
    positional = [item for item in layout.formals if not item.keyword]
    found = {item.name: value for item, value in zip(positional, node.args, strict=False)}
    found.update(node.kwargs)
    return found


def plain(value: Any) -> Any:
    """Give a plain argument as rules write it: dtypes, devices and formats by their names."""
    if isinstance(value, torch.dtype | torch.layout | torch.memory_format):
        return str(value).removeprefix("torch.")
    if isinstance(value, torch.device):
        return str(value)
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value
