"""Patterns that name a module: every call of a class, or of the modules at some paths, as a match.

The nodes of a call are those captured under its entry in the module stack. What enters them from
elsewhere are the arguments of `forward`, or the module's own parameters and buffers by name.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any

import torch

from oprep.converters.match import Match
from oprep.converters.programs.view import TorchView
from oprep.opsets.expression import free_variables, variables
from oprep.opsets.rule import ModulePattern, Rule
from oprep.opsets.syntax import Equation


def module_matches(
    view: TorchView, rule: Rule, order: int, alternative: int, pattern: ModulePattern
) -> Iterator[Match]:
    """Give the calls of the named modules, the outermost where one lies in another."""
    calls: dict[str, tuple[str, str, list[int]]] = {}
    for node in range(len(view.fx)):
        for path, kind, key in view.modules(node):
            if _named(pattern.module, path, kind):
                calls.setdefault(key, (path, kind, []))[2].append(node)
                break
    for path, kind, nodes in calls.values():
        match = _match(view, rule, order, alternative, path, kind, nodes)
        if match is not None:
            yield match


def _named(wanted: str, path: str, kind: str) -> bool:
    if kind in _class_names(wanted):
        return True
    return bool(path) and fnmatchcase(path, wanted)


def _class_names(wanted: str) -> tuple[str, ...]:
    """Give the names under which a class may be recorded: `torch.nn.GELU` lies elsewhere."""
    module = wanted.rpartition(".")[0]
    found = _class(wanted) if module.partition(".")[0] == "torch" else None
    if found is None:
        return (wanted,) if module else ()
    return wanted, f"{found.__module__}.{found.__qualname__}"


def _class(name: str) -> type | None:
    module, _, last = name.rpartition(".")
    try:
        found = getattr(importlib.import_module(module), last, None)
    except ImportError:
        return None
    return found if isinstance(found, type) else None


def _match(
    view: TorchView, rule: Rule, order: int, alternative: int, path: str, kind: str,
    nodes: list[int],
) -> Match | None:  # fmt: skip
    region, inside = view.region, set(nodes)
    outputs = [
        value
        for node in nodes
        for value in region.outputs[node]
        if value in region.results or any(u not in inside for u in region.users.get(value, ()))
    ]
    entering: dict[str, None] = {}
    for node in nodes:
        for value in region.inputs[node]:
            for item in getattr(value, "items", None) or (value,):
                if item and not hasattr(item, "number") and region.producer.get(item) not in inside:
                    entering[item] = None
    if not outputs:
        return None
    bound = _bound(view, rule, path, kind, list(entering))
    return Match(rule, order, alternative, view, tuple(nodes), tuple(outputs), bound)


def _bound(
    view: TorchView, rule: Rule, path: str, kind: str, entering: list[str]
) -> dict[str, Any]:
    bound: dict[str, Any] = {}
    arguments: list[str] = []
    for value in entering:
        home = view.home(value)
        held = home is not None and home[0].parent is None
        target = view.owner.bound.get(home[1], ("", ""))[1] if held and home else ""
        own = _own_name(view, path, target)
        if own:
            bound[own] = value
        elif not target:
            arguments.append(value)
    names = _parameters(kind) or _wanted(rule, bound)
    bound.update(zip(names, arguments, strict=False))
    return bound


def _own_name(view: TorchView, path: str, target: str) -> str:
    """Give a module's own name for a tensor of the program; empty where it has none.

    A tensor that several modules share has several names, and a graph calls it by one of them.
    """
    prefix = f"{path}." if path else ""
    if target.startswith(prefix):
        return target.removeprefix(prefix)
    tensor = view.owner.named(target)
    same = [
        name
        for _, name in view.owner.bound.values()
        if name.startswith(prefix) and tensor is not None and _tied(tensor, view.owner.named(name))
    ]
    last = prefix + target.rpartition(".")[2]
    found = last if last in same else next(iter(same), prefix)
    return found.removeprefix(prefix)


def _tied(one: torch.Tensor, other: torch.Tensor | None) -> bool:
    """Tell whether two names have one tensor behind them, or had before they were saved."""
    if other is None or one.shape != other.shape or one.dtype != other.dtype:
        return False
    return one.data_ptr() == other.data_ptr() or (one.device.type != "meta" and one.equal(other))


def _parameters(kind: str) -> list[str]:
    """Give the parameters of a torch module's `forward`; nothing of other classes is imported."""
    found = _class(kind) if kind.startswith("torch.") else None
    if found is None or not issubclass(found, torch.nn.Module):
        return []
    return list(inspect.signature(found.forward).parameters)[1:]


def _wanted(rule: Rule, bound: dict[str, Any]) -> list[str]:
    """Take the names that `with` uses, in order, where the signature of `forward` is unknown."""
    target = rule.replacement
    names = list(variables(target)) if isinstance(target, Equation) else []
    names += list(free_variables(rule.when)) if rule.when is not None else []
    return [name for name in dict.fromkeys(names) if name not in bound]
