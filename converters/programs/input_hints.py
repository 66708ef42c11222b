"""What a captured graph says about the values of its integer inputs: tables, classes, constants.

An input is followed through views, casts and branches to what it indexes or is compared with. A
wrong hint does no harm: the original refuses the value, and the refusal is listed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor, fx

from oprep.converters.hints import Hint

SAME_VALUES = frozenset(
    ("_to_copy", "alias", "broadcast_to", "cat", "chunk", "clone", "contiguous", "detach",
     "detach_", "expand", "flatten", "flip", "lift_fresh_copy", "movedim", "narrow", "permute",
     "ravel", "repeat", "reshape", "roll", "select", "slice", "split", "split_with_sizes",
     "squeeze", "stack", "t", "to", "transpose", "type_as", "unbind", "unflatten", "unsqueeze",
     "view")
)  # fmt: skip
COMPARED = {
    "eq": "equal", "ne": "equal", "lt": "ordered", "le": "ordered", "gt": "ordered",
    "ge": "ordered",
}  # fmt: skip
CLASSES = frozenset(("cross_entropy_loss", "nll_loss", "nll_loss_nd", "nll_loss2d"))
MOST_STEPS = 10_000


def input_hints(graph_module: fx.GraphModule) -> dict[str, Hint]:
    """Follow every placeholder of the main graph."""
    found = {}
    for node in graph_module.graph.nodes:
        if node.op == "placeholder":
            facts = list(_follow(graph_module, node))
            found[node.name] = Hint(
                rows=min((int(f[1]) for f in facts if f[0] == "rows"), default=None),
                equal=tuple(dict.fromkeys(f[1] for f in facts if f[0] == "equal")),
                ordered=tuple(dict.fromkeys(f[1] for f in facts if f[0] == "ordered")),
            )
    return found


def _follow(root: fx.GraphModule, start: fx.Node) -> Iterator[tuple[str, float]]:
    """Walk to all users; a value may be shifted by a constant on its way to a table."""
    todo: list[tuple[fx.GraphModule, fx.Node, int]] = [(root, start, 0)]
    seen: set[tuple[fx.Node, int]] = set()
    while todo and len(seen) < MOST_STEPS:
        module, value, shift = todo.pop()
        if (value, shift) in seen:
            continue
        seen.add((value, shift))
        for user in value.users:
            name = _op(user)
            if name in SAME_VALUES or name == "getitem" or name == "copy_":
                todo.append((module, user, shift))
            elif name in ("add", "sub") and isinstance(user.args[1], int):
                todo.append((module, user, shift + user.args[1] * (1 if name == "add" else -1)))
            elif not name:
                todo += [(body, place, shift) for body, place in _inside(module, user, value)]
            yield from _facts(user, value, name, shift)


def _op(node: fx.Node) -> str:
    """Give the base name of an aten op, `add` for `aten::add.Tensor` and `aten::add_`."""
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        return "getitem" if getattr(node.target, "__name__", "") == "getitem" else ""
    name = str(schema.name).rpartition("::")[2]
    return name if name in ("copy_", "detach_") or not name.endswith("_") else name[:-1]


def _facts(user: fx.Node, value: fx.Node, name: str, shift: int) -> Iterator[tuple[str, float]]:
    args = user.args
    rows: Any = None
    if name in ("embedding", "embedding_bag") and len(args) > 1 and args[1] is value:
        rows = _size(args[0], 0)
    elif name in ("index", "index_put") and isinstance(args[1], list | tuple):
        rows = next((_size(args[0], i) for i, one in enumerate(args[1]) if one is value), None)
    elif name in ("index_select", "gather", "scatter", "index_add", "index_copy") and (
        len(args) > 2 and args[2] is value and isinstance(args[1], int)
    ):
        rows = _size(args[0], args[1])
    elif name == "take_along_dim" and len(args) > 2 and args[1] is value:
        rows = _size(args[0], args[2]) if isinstance(args[2], int) else None
    elif name == "one_hot" and len(args) > 1:
        rows = args[1] if isinstance(args[1], int) and args[1] > 0 else None
    elif name in CLASSES and len(args) > 1 and args[1] is value:
        rows = _size(args[0], 1 if _rank(args[0]) > 1 else 0)
    if isinstance(rows, int) and rows - shift > 0:
        yield "rows", float(rows - shift)
    if name in COMPARED and isinstance(args[1], int | float) and not isinstance(args[1], bool):
        yield COMPARED[name], float(args[1] - shift)


def _size(node: Any, axis: int) -> int | None:
    value = node.meta.get("val") if isinstance(node, fx.Node) else None
    if not isinstance(value, Tensor) or not -value.dim() <= axis < value.dim():
        return None
    size = value.shape[axis]
    return size if type(size) is int else None


def _rank(node: Any) -> int:
    value = node.meta.get("val") if isinstance(node, fx.Node) else None
    return value.dim() if isinstance(value, Tensor) else 0


def _inside(
    module: fx.GraphModule, user: fx.Node, value: fx.Node
) -> Iterator[tuple[fx.GraphModule, fx.Node]]:
    """Find a value again in the branches that a higher-order op or a region is called with.

    The operands are the last arguments of such a call, in the order of a branch's placeholders.
    """
    flat: list[Any] = []
    for arg in user.args:
        flat.extend(arg if isinstance(arg, list | tuple) else [arg])
    bodies = [body for body in (_body(module, arg) for arg in flat) if body is not None]
    operands = [arg for arg in flat if _body(module, arg) is None]
    for body in bodies:
        inner = [node for node in body.graph.nodes if node.op == "placeholder"]
        pairs = zip(operands[len(operands) - len(inner) :], inner, strict=False)
        yield from ((body, place) for operand, place in pairs if operand is value)


def _body(module: fx.GraphModule, arg: Any) -> fx.GraphModule | None:
    if isinstance(arg, fx.Node) and arg.op == "get_attr":
        found = getattr(module, str(arg.target), None)
        return found if isinstance(found, fx.GraphModule) else None
    return None
