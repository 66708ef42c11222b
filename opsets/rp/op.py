"""A registered op: its contract, its two overloads, and the class that computes it now."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from oprep.opsets.rp.arguments import Parameter, filled
from oprep.opsets.rp.contract import Contract
from oprep.opsets.rp.function import (
    Class,
    declared,
    has_backward,
    has_setup,
    own_method,
    takes_ctx,
)
from oprep.opsets.rp.messages import broken, misused, qualified
from oprep.opsets.rp.recorder import Recorder, run, share


@dataclass(frozen=True)
class Implementation:
    """The class that computes an op, and what was found out about it once."""

    cls: Class
    fake: Callable[..., Any] | None
    fake_takes_ctx: bool
    derived: bool
    """The gradient is that of forward: there is no backward, and the op is differentiable."""
    differentiable: bool
    double_backward: bool

    def run(self, args: Sequence[Any], needs: Sequence[Any]) -> tuple[Any, Recorder]:
        """Run forward; give its result and what it left for backward."""
        return run(self.cls, args, needs)

    def run_fake(self, args: Sequence[Any], needs: Sequence[Any]) -> tuple[Any, Recorder]:
        """Do as `run` does on tensors without data."""
        if self.fake is None:
            return run(self.cls, args, needs)
        ctx = Recorder(needs)
        if self.fake_takes_ctx:
            return self.fake(ctx, *args), ctx
        result = self.fake(*args)
        if has_setup(self.cls):
            self.cls.setup_context(ctx, tuple(args), result)
        return result, ctx


def implement(
    cls: Class, contract: Contract, arguments: int, fake: Callable[..., Any] | None
) -> Implementation:
    """Look at a class; refuse one that cannot keep the contract."""
    fake = fake or own_method(cls, "fake")
    with_ctx = fake is not None and takes_ctx(fake, arguments)
    able = contract.differentiable and bool(declared(cls).get("differentiable", True))
    derived = able and not has_backward(cls)
    if derived and contract.random:
        raise misused(
            f"`{contract.name}` draws random numbers and has no backward",
            where=qualified(cls),
            notes=("running forward again for the gradient would draw other numbers",),
            help="write a `backward` that uses what forward saved",
        )
    if fake and not with_ctx and not has_setup(cls) and has_backward(cls):
        raise misused(
            f"`fake` of `{contract.name}` does not say what forward saves",
            where=qualified(cls),
            help="write `fake(ctx, …)` and save in it as `forward` does",
        )
    return Implementation(cls, fake, with_ctx, derived, able, contract.double_backward)


def _unset(args: tuple[Any, ...]) -> Any:
    raise AssertionError("the op is not ready")


@dataclass(eq=False)
class Op:
    """One op of the dispatcher that was registered here."""

    contract: Contract
    parameters: tuple[Parameter, ...]
    returns: str
    """`one` tensor, a fixed number (`many`), a `list`, or `none`."""
    results: int
    library: Any
    overload: OpOverload
    hidden: OpOverload | None
    now: Implementation
    base: Implementation
    definition: str
    eager: Callable[[tuple[Any, ...]], Any] = _unset
    layers: list[Any] = field(default_factory=list)
    fresh: bool = True
    """The class has not been called yet: its first call is watched."""

    @property
    def name(self) -> str:
        """Give the qualified name, `ns::op`."""
        return self.contract.name

    def arguments(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], *, check: bool = True
    ) -> tuple[Any, ...]:
        """Give all arguments in the order of the schema, checked and laid out as declared."""
        args = filled(self.parameters, args, kwargs)
        if not check:
            return args
        if self.contract.dtypes:
            self._check_dtypes(args)
        if self.contract.layouts == "contiguous":
            return tuple(map(_contiguous, args, self.parameters))
        return args

    def split(self, args: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Part all arguments into positional and keyword-only ones, as the overload takes them."""
        names = [item.name for item in self.parameters if item.keyword]
        if not names:
            return tuple(args), {}
        at = len(args) - len(names)
        return tuple(args[:at]), dict(zip(names, args[at:], strict=True))

    def _check_dtypes(self, args: tuple[Any, ...]) -> None:
        for parameter, value in zip(self.parameters, args, strict=True):
            for tensor in _tensors(value) if parameter.tensor else ():
                if tensor.dtype not in self.contract.dtypes:
                    known = ", ".join(_short(dtype) for dtype in self.contract.dtypes)
                    raise misused(
                        f"`{self.name}` does not take {_short(tensor.dtype)}",
                        where=f"argument `{parameter.name}`",
                        notes=(f"declared: {known}",),
                        help="convert the tensor, or add the dtype to `dtypes`",
                    )

    def first(self, call: Callable[[], Any], args: Sequence[Any]) -> Any:
        """Call it for the first time; refuse a forward that changes what it does not declare."""
        rows = [
            (parameter, tensor, tensor._version)
            for parameter, value in zip(self.parameters, args, strict=True)
            for tensor in (() if parameter.mutated else _tensors(value))
            if not tensor.is_inference()
        ]
        result = call()
        for parameter, tensor, version in rows:
            if tensor._version != version:
                raise broken(
                    f"`forward` of `{self.name}` changes `{parameter.name}` in place",
                    where=qualified(self.now.cls),
                    notes=(f"schema: {self.contract.schema}",),
                    help=f'work on a copy, or declare `mutates=("{parameter.name}",)`',
                )
        self.fresh = not rows
        return result

    def outputs(self, args: Sequence[Any], result: Any) -> tuple[Tensor, ...]:
        """Give what forward returned as a tuple; refuse what the schema does not say."""
        found = self.counted(result)
        for value in args:
            for tensor in _tensors(value):
                if any(share(tensor, output) for output in found):
                    raise self._alias("returns an argument, or a view of one")
        if len(found) > 1 and any(
            share(one, other) for index, one in enumerate(found) for other in found[:index]
        ):
            raise self._alias("returns the same memory twice")
        return found

    def counted(self, result: Any) -> tuple[Tensor, ...]:
        """Give what forward returned as a tuple of as many tensors as the schema says."""
        if isinstance(result, Tensor) and self.returns == "one":
            return (result,)
        if result is None:
            found: tuple[Any, ...] = ()
        else:
            found = tuple(result) if isinstance(result, list | tuple) else (result,)
        right = self.returns == "list" or (self.returns != "one" and len(found) == self.results)
        if right and all(isinstance(value, Tensor) for value in found):
            return found
        told = ", ".join(type(value).__name__ for value in found) or "nothing"
        raise broken(
            f"`forward` of `{self.name}` gives something else than its schema says",
            where=qualified(self.now.cls),
            notes=(f"schema: {self.contract.schema}", f"forward returned: {told}"),
            help="annotate the result of `forward`, or give `schema`",
        )

    def _alias(self, fact: str) -> Exception:
        return broken(
            f"`forward` of `{self.name}` {fact}",
            where=qualified(self.now.cls),
            notes=(f"schema: {self.contract.schema}",),
            help="return a copy (`.clone()`), or declare the argument in `mutates`",
        )

    def given(self, outputs: Sequence[Tensor]) -> Any:
        """Give outputs in the form that the dispatcher wants."""
        if self.returns == "one":
            return outputs[0]
        if self.returns == "none":
            return None
        return list(outputs) if self.returns == "list" else tuple(outputs)


def _contiguous(value: Any, parameter: Parameter) -> Any:
    if not parameter.tensor or parameter.mutated or value is None:
        return value
    if isinstance(value, Tensor):
        return value.contiguous()
    return [None if part is None else part.contiguous() for part in value]


def _tensors(value: Any) -> Sequence[Tensor]:
    if isinstance(value, Tensor):
        return (value,)
    if isinstance(value, list | tuple):
        return [part for part in value if isinstance(part, Tensor)]
    return ()


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
