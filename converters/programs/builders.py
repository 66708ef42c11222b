"""How the calls of a replacement are made: at once on tensors, or as new nodes of an fx graph."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch._ops import OpOverload
from torch._subclasses import FakeTensorMode
from torch.fx import Graph, Node
from torch.fx.experimental import _config
from torch.fx.experimental.symbolic_shapes import compute_unbacked_bindings
from torch.utils._pytree import tree_map

from oprep.converters.programs.casting import Casts, entered


@contextmanager
def sizes_of_one_are_like_others(mode: FakeTensorMode | None) -> Iterator[None]:
    """Let torch decide questions such as `size == 1` of a free dim in general, not by its hint.

    Broadcasting asks them of every dim whose range begins at 1; answered by the hint they look like
    a narrowing of that range. So they do where torch tries what it would take from its cache.
    """
    kept = mode is not None and mode.cache_enabled
    with _config.patch(backed_size_oblivious=True):  # type: ignore[attr-defined]
        if mode is not None:
            mode.cache_enabled = False
        try:
            yield
        finally:
            if mode is not None:
                mode.cache_enabled = kept


class Builder(Protocol):
    """Makes calls; an operand is whatever stands for a tensor or a size here."""

    def call(
        self, overload: OpOverload, arguments: Sequence[Any], keywords: Mapping[str, Any]
    ) -> Any:
        """Make a call; give its result, or a tuple of results."""

    def value(self, operand: Any) -> Any:
        """Give the tensor or the number behind an operand; a fake one in a graph."""


@dataclass(frozen=True, slots=True)
class EagerBuilder:
    """Calls ops at once; operands are tensors."""

    def call(
        self, overload: OpOverload, arguments: Sequence[Any], keywords: Mapping[str, Any]
    ) -> Any:
        """Call the op."""
        result = overload(*arguments, **keywords)
        return tuple(result) if isinstance(result, list | tuple) else result

    def value(self, operand: Any) -> Any:
        """Give the operand itself."""
        return operand


@dataclass(slots=True)
class FxBuilder:
    """Inserts nodes before `before`; `meta` is what each of them is told of its origin.

    A node's value is found by running its op, and nothing else, under the graph's own fake mode;
    an op that would narrow the sizes which the program takes fails. `failed` makes the error that
    names the site. `made` are the new nodes, `casts` the autocast around the graph.
    """

    graph: Graph
    before: Node
    mode: FakeTensorMode | None
    meta: Mapping[str, Any] = field(default_factory=dict)
    failed: Callable[[OpOverload, Exception], Exception] = lambda overload, error: error
    made: list[Node] = field(default_factory=list)
    casts: Casts = ()

    def call(
        self, overload: OpOverload, arguments: Sequence[Any], keywords: Mapping[str, Any]
    ) -> Any:
        """Insert a node, and one for each result where there are several."""
        called = str(overload).partition(".")[2]
        with self.graph.inserting_before(self.before):
            node = self.graph.create_node(
                "call_function",
                overload,
                tuple(arguments),
                dict(keywords),
                name=called.partition(".")[0],
            )
        value = self._run(node, overload)
        origin = (f"{called}_1", f"OpOverload.{called}")
        self._tell(node, value, origin)
        if not isinstance(value, list | tuple):
            return node
        return tuple(self._item(node, index, item, origin) for index, item in enumerate(value))

    def value(self, operand: Any) -> Any:
        """Give what a node was found to be."""
        return operand.meta.get("val") if isinstance(operand, Node) else operand

    def _item(self, node: Node, index: int, value: Any, origin: tuple[str, str]) -> Node:
        with self.graph.inserting_before(self.before):
            item = self.graph.call_function(operator.getitem, (node, index))
        self._tell(item, value, origin)
        return item

    def _tell(self, node: Node, value: Any, torch_fn: tuple[str, str]) -> None:
        node.meta.update(self.meta)
        node.meta["val"] = value
        node.meta["torch_fn"] = torch_fn
        self.made.append(node)

    def _run(self, node: Node, overload: OpOverload) -> Any:
        values = tree_map(self.value, (node.args, node.kwargs))
        try:
            if self.mode is None:
                return overload(*values[0], **values[1])
            env = self.mode.shape_env
            fixed = nullcontext() if env is None else env.error_on_new_guards()
            general = sizes_of_one_are_like_others(self.mode)
            with self.mode, torch.no_grad(), fixed, general, entered(self.casts):
                result = overload(*values[0], **values[1])
            if env is not None:
                found = compute_unbacked_bindings(env, result)
                if found:
                    node.meta["unbacked_bindings"] = found
            return result
        except Exception as error:
            raise self.failed(overload, error) from error
