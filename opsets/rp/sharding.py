"""Tell DTensor how an op's inputs and outputs may be split over devices, from its contract.

Both overloads need a rule: in grad mode a traced graph holds the hidden one. DTensor takes half a
second to import, so an op waits until somebody else has imported it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch

from oprep.opsets.rp.op import Op

_WAITING: list[Op] = []
_HOME = "torch.distributed.tensor"


def wait(op: Op) -> None:
    """Teach DTensor about an op, now or when it is there."""
    if op.contract.sharding == "none":
        return
    _WAITING.append(op)
    if hasattr(sys.modules.get(_HOME), "DTensor"):
        teach_waiting()


def teach_waiting() -> None:
    """Teach DTensor about the ops that were registered before it was imported."""
    if not _WAITING or not hasattr(sys.modules.get(_HOME), "DTensor"):
        return
    while _WAITING:
        _teach(_WAITING.pop())


def forget() -> None:
    """Let DTensor ask again: an op saves other tensors than before."""
    if hasattr(sys.modules.get(_HOME), "DTensor"):
        from torch.distributed.tensor.debug import _clear_sharding_prop_cache

        _clear_sharding_prop_cache()  # type: ignore[no-untyped-call]


def _teach(op: Op) -> None:
    from torch.distributed.tensor.experimental import register_sharding

    register_sharding(op.overload)(_rule(op))
    if op.hidden is not None:
        _teach_hidden(op)


def _teach_hidden(op: Op) -> None:
    """Register the hidden op, whose number of results is known only from a call."""
    from torch.distributed.tensor import DTensor
    from torch.distributed.tensor._op_schema import OpStrategy, RuntimeSchemaInfo, TupleStrategy
    from torch.distributed.tensor._ops.utils import expand_to_full_mesh_op_strategy

    def spec(strategy: Any) -> Any:
        if isinstance(strategy, OpStrategy):
            return strategy.strategies[0].output_spec
        if isinstance(strategy, TupleStrategy):
            return [spec(child) for child in strategy.children]
        return strategy

    def strategy(schema: Any) -> Any:
        args = tuple(map(spec, schema.args_schema))
        kwargs = {name: spec(value) for name, value in schema.kwargs_schema.items()}
        given = op.arguments(args, kwargs, check=False)
        rows = _hidden_rows(op, given, _rule(op)(*args, **kwargs))
        expanded = expand_to_full_mesh_op_strategy(
            schema.get_mesh_from_args(), schema, rows[1], input_index=rows[0]
        )
        for one in expanded.strategies:  # a list of one tensor needs a tuple of one spec
            if not isinstance(one.output_specs, tuple):
                one.output_specs = (one.output_specs,)
        return expanded

    dispatcher = DTensor._op_dispatcher
    static = next((i for i, p in enumerate(op.parameters) if not p.tensor), 100)
    info = RuntimeSchemaInfo(static, needs_pytree=True)
    assert op.hidden is not None
    dispatcher.sharding_propagator.register_op_strategy(op.hidden, strategy, info)


Row = tuple[list[Any], list[Any]]


def _hidden_rows(op: Op, args: Sequence[Any], rows: Sequence[Row]) -> tuple[int, list[list[Any]]]:
    """Give the number of results and each possible split with the extra tensors' included."""
    from torch.distributed.tensor import Replicate, Shard

    inputs = [part for value in args for part in (value if isinstance(value, list) else [value])]
    shapes = [tuple(value.shape) if hasattr(value, "placements") else () for value in inputs]
    results = [tuple(part.shape) for part in _call_hidden(op, [_meta(value) for value in args])]
    found = []
    for outs, ins in rows:
        known = [*zip(results, outs, strict=False), *zip(shapes, ins, strict=True)]
        splits = [(shape, place) for shape, place in known if isinstance(place, Shard)]
        whole = not splits and all(isinstance(p, Replicate) for _, p in known if p is not None)
        extras: list[Any] = []
        for result in results[len(outs) :]:
            split = next((p for s, p in splits if result[: p.dim + 1] == s[: p.dim + 1]), None)
            extras.append(Replicate() if whole else split)
        if None not in extras:
            found.append([*outs, *extras, *ins])
    return len(results), found


def _call_hidden(op: Op, args: Sequence[Any]) -> Any:
    assert op.hidden is not None
    positional, named = op.split(args)
    return op.hidden(*positional, **named)


def _meta(value: Any) -> Any:
    if isinstance(value, list):
        return [_meta(part) for part in value]
    if not hasattr(value, "placements"):
        return value
    return torch.empty(tuple(value.shape), dtype=value.tensor_meta.dtype, device="meta")


def _rule(op: Op) -> Callable[..., list[Row]]:
    """Give the op's rule in the form that `register_sharding` takes."""
    given = op.contract.sharding
    if callable(given):
        return given

    def rule(*args: Any, **kwargs: Any) -> list[Row]:
        from torch.distributed.tensor import Partial, Replicate, Shard

        values = op.arguments(args, kwargs, check=False)
        inputs = [part for v in values for part in (v if isinstance(v, list | tuple) else [v])]
        ranks = [len(v.shape) if hasattr(v, "placements") else None for v in inputs]
        results = max(op.results, 1)
        rows: list[Row] = [
            ([Replicate()] * results, [None if r is None else Replicate() for r in ranks])
        ]
        top = max((rank for rank in ranks if rank is not None), default=0)
        last = {"elementwise": top, "reduce": top, "rowwise": top - 1}.get(str(given), 0)
        for dim in range(last):
            ins = [
                None if v is None or r is None else _place(v, dim, top, inputs)
                for v, r in zip(inputs, ranks, strict=True)
            ]
            out = Partial() if given == "reduce" else Shard(dim)
            rows.append(([out] * results, ins))
        return rows

    return rule


def _place(value: Any, dim: int, top: int, inputs: Sequence[Any]) -> Any:
    """Split an input on the dim that broadcasts to `dim` of the result, where it has that dim."""
    from torch.distributed.tensor import Replicate, Shard

    own = dim - (top - len(value.shape))
    size = max(
        v.shape[dim - (top - len(v.shape))]
        for v in inputs
        if hasattr(v, "placements") and dim >= top - len(v.shape)
    )
    return Shard(own) if own >= 0 and value.shape[own] == size else Replicate()
