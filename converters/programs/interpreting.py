"""Run a captured graph node by node, the graphs that it calls included, and let others watch.

Conditions, loops and regions are run here as what they mean, so that whoever watches sees real
tensors, and autograd runs through them as through any other code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.fx import GraphModule, Interpreter, Node
from torch.utils import _pytree as pytree

Call = Callable[..., Any]


class Watcher(Protocol):
    """Is told of each node before and after it runs, once per execution of its graph."""

    def before(self, node: Node, env: Mapping[Node, Any]) -> None:
        """See what a node is about to read."""

    def after(self, node: Node, made: Any) -> Any:
        """See what a node made, and give what later nodes are to get for it."""


Watch = Callable[[GraphModule], "Watcher | None"]
"""Gives who watches one execution of a graph; None where nobody does."""


def run_graph(graph: GraphModule, inputs: Sequence[Any], watch: Watch) -> tuple[Any, ...]:
    """Run a graph on the values of its placeholders; give its results in order."""
    made = _Frame(graph, watch).run(*inputs, enable_io_processing=False)
    return tuple(made) if isinstance(made, tuple | list) else (made,)


class _Frame(Interpreter):
    """One execution of one graph."""

    def __init__(self, graph: GraphModule, watch: Watch) -> None:
        super().__init__(graph)
        self.watch, self.watcher = watch, watch(graph)

    def run_node(self, n: Node) -> Any:
        if self.watcher is None:
            return super().run_node(n)
        self.watcher.before(n, self.env)
        return self.watcher.after(n, super().run_node(n))

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if isinstance(target, torch._ops.HigherOrderOperator):
            known = REGIONS.get(target._name)
            if known is not None:
                inner = [self.entered(item) for item in args]
                named = {key: self.entered(item) for key, item in kwargs.items()}
                return known(*inner, **named)
        return super().call_function(target, args, kwargs)

    def entered(self, item: Any) -> Any:
        """Let a graph that is passed to a region be run by this interpreter."""
        if not isinstance(item, GraphModule):
            return item
        return lambda *inputs: run_graph(item, inputs, self.watch)


def _cond(condition: Any, yes: Call, no: Call, operands: Sequence[Any] = ()) -> Any:
    return (yes if bool(condition) else no)(*operands)


def _while(condition: Call, body: Call, carried: Sequence[Any], more: Sequence[Any] = ()) -> Any:
    values = tuple(carried)
    while bool(_single(condition(*values, *more))):
        values = tuple(body(*values, *more))
    return values


def _single(made: Any) -> Any:
    return made[0] if isinstance(made, tuple) else made


def _map(body: Call, over: Sequence[Any], more: Sequence[Any] = ()) -> Any:
    return _stacked([body(*item, *more) for item in zip(*map(_unbound, over), strict=True)])


def _scan(body: Call, carried: Sequence[Any], over: Sequence[Any], more: Sequence[Any] = ()) -> Any:
    values, made = tuple(carried), []
    for item in zip(*map(_unbound, over), strict=True):
        results = body(*values, *item, *more)
        values = tuple(results[: len(values)])
        made.append(tuple(results[len(values) :]))
    return [*values, *_stacked(made)]


def _unbound(tensor: Tensor) -> tuple[Tensor, ...]:
    return tensor.unbind(0)


def _stacked(rows: Sequence[Sequence[Any]]) -> tuple[Any, ...]:
    columns = zip(*rows, strict=True)
    return tuple(None if column[0] is None else torch.stack(list(column)) for column in columns)


def _under_grad(enabled: bool, body: Call, *operands: Any) -> Any:
    with torch.set_grad_enabled(enabled):
        return body(*operands)


def _under_autocast(
    device: str, dtype: Any, enabled: bool, cache: bool, body: Call, *operands: Any
) -> Any:
    with torch.autocast(device, dtype=dtype, enabled=enabled, cache_enabled=cache):
        return body(*operands)


def _plain(body: Call, *operands: Any, **settings: Any) -> Any:
    return body(*pytree.tree_leaves(operands))


def _named(body: Call, identifier: Any, *operands: Any) -> Any:
    return body(*operands)


REGIONS: dict[str, Call] = {
    "cond": _cond,
    "while_loop": _while,
    "map_impl": _map,
    "scan": _scan,
    "wrap_with_set_grad_enabled": _under_grad,
    "wrap_with_autocast": _under_autocast,
    "wrap": _plain,
    "strict_mode": _plain,
    "tag_activation_checkpoint": _plain,
    "invoke_subgraph": _named,
}
"""What each region means, by the name of its higher-order op. Others are called as they are: what
lies in them is not watched."""
