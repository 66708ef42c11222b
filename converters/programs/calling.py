"""Make one call in torch: choose the overload, convert what it takes otherwise, call it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._ops import OpOverload

from oprep.converters.graph import ABSENT
from oprep.converters.programs.builders import Builder
from oprep.converters.programs.fitting import NUMBER, WRAPPED, Fitted, Fitter, Misfit, New
from oprep.converters.programs.layout import key_of
from oprep.converters.programs.literals import beside, constant
from oprep.converters.programs.overloads import results_of
from oprep.opsets.errors import ExitCode, OprepError
from oprep.opsets.expression import UNKNOWN
from oprep.opsets.rule import REQUIRED
from oprep.opsets.syntax import Expression, Name
from oprep.opsets.vocabulary import Function

PLAIN = (str, bool, int, float, list, tuple)


@dataclass(slots=True)
class Caller:
    """Makes calls through a builder; `ask` gives what only the graph knows, `where` is the rule."""

    builder: Builder
    ask: Callable[[Expression], Any]
    where: str

    def bind(
        self, function: Function, arguments: Sequence[Any], keywords: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Give each parameter of a function its operand or its default."""
        formal = function.parameters
        bound: dict[str, Any] = {}
        waiting = list(arguments)
        for parameter in formal:
            if not waiting:
                break
            if parameter.kind == "tensors" and not isinstance(waiting[0], tuple | list):
                bound[parameter.name], waiting = tuple(waiting), []
            else:
                bound[parameter.name] = waiting.pop(0)
        if waiting:
            message = f"`{function.name}` takes {len(formal)} arguments, {len(arguments)} are given"
            raise self.error(message, "remove the rest")
        bound |= keywords
        for parameter in formal:
            if bound.get(parameter.name, ABSENT) is ABSENT:
                if parameter.default is REQUIRED:
                    message = f"`{function.name}` lacks `{parameter.name}`"
                    raise self.error(message, f"write `{parameter.name}=…`")
                bound[parameter.name] = parameter.default
        return bound

    def choose(
        self, name: str, overloads: Sequence[OpOverload], fit: Callable[[OpOverload], Fitted]
    ) -> Fitted:
        """Choose the overload that takes its operands with the least conversion."""
        fitting: list[Fitted] = []
        reasons: list[str] = []
        for overload in overloads:
            try:
                fitting.append(fit(overload))
            except Misfit as misfit:
                reasons.append(f"`{key_of(overload)}`: {misfit}")
        if fitting:
            return min(fitting, key=lambda item: item.cost * (key_of(item.overload) not in WRAPPED))
        message = f"`{name}` has no overload in torch that takes what is given"
        notes = tuple(reasons[:3])
        help = "correct the call"
        raise OprepError(message, self.where, notes, help, ExitCode.EXPECTATION)

    def fitter(self, scope: Mapping[str, Any]) -> Fitter:
        """Give what knows the operands of this scope."""
        names = {id(value): name for name, value in scope.items() if self.is_tensor(value)}

        def plain(value: Any) -> Any:
            name = names.get(id(value))
            found = UNKNOWN if name is None else self.ask(Name(name))
            return value if found is UNKNOWN else found

        return Fitter(self.is_tensor, self.is_symbol, plain)

    def make(self, fitted: Fitted, *, numbers: bool = False) -> tuple[Any, ...]:
        """Make a call, and the constants that it needs before it."""
        tensors = [item for item in _flat(fitted.arguments) if self.is_tensor(item)]
        tensors += [item for item in _flat(fitted.keywords.values()) if self.is_tensor(item)]
        known = [self.builder.value(item) for item in tensors]
        # a condition says nothing about the dtype of what is chosen by it
        like = next((item for item in known if item.dtype != torch.bool), None)
        like = known[0] if like is None and known else like
        stays = bool(tensors) and key_of(fitted.overload) in WRAPPED

        def settled(item: Any) -> Any:
            if isinstance(item, tuple | list):
                return [settled(one) for one in item]
            if isinstance(item, New):
                if self.is_symbol(item.value) or (stays and isinstance(item.value, NUMBER)):
                    return self.beside(item.value, like)
                if like is None:
                    message = f"nothing says which dtype {item.value!r} has"
                    raise self.error(message, "write it beside a tensor, or cast it")
                return constant(self.builder, self.beside(item.value, like), like)
            return item

        arguments = [settled(item) for item in fitted.arguments]
        if numbers and like is not None:
            arguments = [
                self.beside(item, like) if type(item) is float else item for item in arguments
            ]
        keywords = {key: settled(item) for key, item in fitted.keywords.items()}
        result = self.builder.call(fitted.overload, arguments, keywords)
        if results_of(fitted.overload) == 1:
            return (result,)
        return tuple(result)

    def beside(self, value: Any, like: Any) -> Any:
        """Bring a number to the dtype of the tensor beside it; a fraction must not be cut."""
        found = beside(value, like)
        if found is ABSENT:
            dtype = str(like.dtype).removeprefix("torch.")
            message = f"the fraction {value!r} stands beside a tensor of {dtype}"
            raise self.error(message, "cast the tensor first")
        return found

    def is_tensor(self, operand: Any) -> bool:
        """Tell whether an operand stands for a tensor."""
        if operand is None or isinstance(operand, PLAIN):
            return False
        return isinstance(self.builder.value(operand), torch.Tensor)

    def is_symbol(self, operand: Any) -> bool:
        """Tell whether an operand is a size that is only known at run time."""
        if operand is None or isinstance(operand, PLAIN):
            return False
        return isinstance(self.builder.value(operand), torch.SymInt | torch.SymFloat)

    def error(self, message: str, help: str) -> OprepError:
        """Make an error at the place of the rule."""
        return OprepError(message, self.where, (), help, ExitCode.RULES)


def _flat(items: Any) -> list[Any]:
    found: list[Any] = []
    for item in items:
        found += _flat(item) if isinstance(item, tuple | list) else [item]
    return found
