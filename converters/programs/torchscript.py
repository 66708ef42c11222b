"""TorchScript to a program: torch's converter, then an export that gives back names and training.

The converter gives a program of flat tensors in which loaded parameters are buffers and inputs
have names of their own. It is wrapped into a module with the original's parameters, buffers and
signature, and exported again.
"""

from __future__ import annotations

import inspect
import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import Tensor, nn

from oprep.converters.programs.exporting import quiet, reason
from oprep.converters.programs.program import Example
from oprep.opsets.errors import ExitCode, OprepError

UNSUPPORTED = re.compile(r"failed for node (\w+::\w+)")
SAID = {
    "prim::Loop": "a loop whose steps depend on data cannot be converted",
    "prim::If": "a branch that depends on data cannot be converted",
}
SOURCE_LINE = re.compile(r'File "(?:[^"]*/)?([^"/]+)", line (\d+)')
HELP = "export the module itself to `.pt2`, or name the code that builds it, as `model.py:build`"


class Traced(nn.Module):
    """A converted graph as a module: it shares the graph's own tables of parameters and buffers."""

    def __init__(
        self,
        graph: nn.Module,
        rebuild: Callable[[Sequence[Tensor]], Any],
        signature: inspect.Signature,
    ) -> None:
        """Wrap a graph of flat tensors; `rebuild` gives results the form of the original's."""
        super().__init__()
        self._parameters = graph._parameters
        self._buffers = graph._buffers
        self._modules = graph._modules
        self._non_persistent_buffers_set = graph._non_persistent_buffers_set

        def forward(*args: Any, **kwargs: Any) -> Any:
            bound = signature.bind(*args, **kwargs)
            leaves = pytree.tree_leaves((bound.args, bound.kwargs))
            return rebuild(graph(*[leaf for leaf in leaves if isinstance(leaf, Tensor)]))

        forward.__signature__ = signature  # type: ignore[attr-defined]
        self.forward = forward


@dataclass(frozen=True)
class Form:
    """How results are put together: their containers, and the values that are no tensors."""

    spec: Any
    constants: tuple[tuple[Any] | None, ...]

    @staticmethod
    def of(result: Any) -> Form:
        """Take the form of a result."""
        leaves, spec = pytree.tree_flatten(result)
        fixed = tuple(None if isinstance(leaf, Tensor) else (leaf,) for leaf in leaves)
        return Form(spec, fixed)

    def rebuild(self, tensors: Sequence[Tensor]) -> Any:
        """Put tensors in their places."""
        rest = iter(tensors)
        leaves = [next(rest) if held is None else held[0] for held in self.constants]
        return pytree.tree_unflatten(leaves, self.spec)


def converted(
    script: torch.jit.ScriptModule,
    tensors: Sequence[Tensor],
    rebuild: Callable[[Any], Any],
    signature: inspect.Signature,
    original: nn.Module,
    name: str,
) -> nn.Module:
    """Convert TorchScript into a module that torch.export takes; exit 3 with what it cannot do."""
    from torch._export.converter import TS2EPConverter

    try:
        with quiet():
            converter = TS2EPConverter(script, tuple(tensors))
            _rename_inputs(converter)
            graph = converter.convert().module(check_guards=False)
    except Exception as error:  # the converter raises whatever it meets
        raise _not_converted(error, script, name) from error
    for hooks in (graph._forward_pre_hooks, graph._forward_pre_hooks_with_kwargs):
        hooks.clear()
    _give_back(graph, original)
    return Traced(graph, rebuild, signature).train(original.training)


def _rename_inputs(converter: Any) -> None:
    """Give inputs names that clash with nothing.

    Traces call them `input` and `input.1`; torch then writes code where one overwrites the other.
    """
    held = (converter.name_to_param, converter.name_to_buffer, converter.name_to_constant)
    for index, value in enumerate(converter.ts_graph.inputs()):
        if not any(value.debugName() in names for names in held):
            value.setDebugName(f"given_{index}_")


def _give_back(graph: nn.Module, original: nn.Module) -> None:
    """Let the graph hold the original's parameters and buffers, under all their names."""
    tables: tuple[tuple[str, Mapping[str, Any]], ...] = (
        ("_parameters", dict(original.named_parameters(remove_duplicate=False))),
        ("_buffers", dict(original.named_buffers(remove_duplicate=False))),
    )
    passing = _passing(original)
    for table, tensors in tables:
        for name, tensor in tensors.items():
            owner, _, leaf = name.rpartition(".")
            module = _made(graph, owner)
            for other in (module._parameters, module._buffers, module.__dict__):
                other.pop(leaf, None)
            if table == "_parameters":
                module.register_parameter(leaf, _parameter(tensor))
            else:
                module.register_buffer(leaf, tensor, persistent=name not in passing)


def _parameter(tensor: Tensor) -> nn.Parameter:
    if isinstance(tensor, nn.Parameter):
        return tensor
    return nn.Parameter(tensor.detach(), tensor.requires_grad)


def _passing(original: nn.Module) -> set[str]:
    """Name buffers that are not saved; TorchScript saves all."""
    if isinstance(original, torch.jit.ScriptModule):
        return set()
    return {
        f"{prefix}.{name}".lstrip(".")
        for prefix, module in original.named_modules(remove_duplicate=False)
        for name in module._non_persistent_buffers_set
    }


def _made(graph: nn.Module, path: str) -> nn.Module:
    """Find a submodule, making it where the graph has none because nothing in it was read."""
    module = graph
    for part in path.split(".") if path else ():
        if part not in module._modules:
            module.__dict__.pop(part, None)
            module.add_module(part, nn.Module())
        child = module._modules[part]
        assert child is not None
        module = child
    return module


def reloaded(script: torch.jit.ScriptModule) -> torch.jit.ScriptModule:
    """Copy a script through its archive: the converter rewrites graphs, which copies share."""
    jit: Any = torch.jit
    buffer = io.BytesIO()
    with quiet():
        jit.save(script, buffer)
        buffer.seek(0)
        found: torch.jit.ScriptModule = jit.load(buffer, map_location="cpu")
    return found


def script_module(script: torch.jit.ScriptModule, example: Example, name: str) -> nn.Module:
    """Convert a TorchScript module, called with the example, keeping the names of its inputs."""
    signature = script_signature(script)
    bound = bind(signature, example, name)
    leaves = pytree.tree_leaves((bound.args, bound.kwargs))
    odd = [leaf for leaf in leaves if not isinstance(leaf, Tensor)]
    if odd:
        raise OprepError(
            f"`{name}` is called with `{odd[0]!r:.60}`, which is no tensor",
            where=name,
            notes=("TorchScript is converted with tensors as inputs",),
            help=HELP,
            exit_code=ExitCode.MODEL,
        )
    return converted(script, apart(leaves), lambda result: result, signature, script, name)


def apart(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Copy tensors, so that none is two inputs: tracing takes the same tensor for one value."""
    return [tensor.detach().clone().requires_grad_(tensor.requires_grad) for tensor in tensors]


def script_signature(script: torch.jit.ScriptModule) -> inspect.Signature:
    """Read parameter names and defaults of `forward` from the schema."""
    parameters = []
    schema: Any = script.forward.schema  # type: ignore[attr-defined]
    for argument in schema.arguments[1:]:
        name = str(argument.name)
        default = (
            argument.default_value if argument.has_default_value() else inspect.Parameter.empty
        )
        parameters.append(
            inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default)
        )
    return inspect.Signature(parameters)


def bind(signature: inspect.Signature, example: Example, name: str) -> inspect.BoundArguments:
    """Bind a call to the parameters; exit 3 where it does not fit."""
    try:
        return signature.bind(*example.args, **example.kwargs)
    except TypeError as error:
        raise OprepError(
            f"the inputs do not fit `{name}`",
            where=example.name,
            notes=(f"it takes {signature}"[:200], str(error)),
            exit_code=ExitCode.MODEL,
        ) from error


def _not_converted(error: Exception, script: Any, name: str) -> OprepError:
    found = UNSUPPORTED.search(str(error))
    kind = found[1] if found else ""
    note = SAID.get(kind, f"the converter does not know `{kind}`") if kind else reason(error)
    return OprepError(
        f"`{name}` cannot be converted from TorchScript",
        where=_place(script, kind) or name,
        notes=(f"{note} (`{kind}`)" if kind in SAID else note,),
        help=HELP,
        exit_code=ExitCode.MODEL,
    )


def _place(script: Any, kind: str) -> str:
    """Find the line of the source that the first node of a kind comes from."""
    graph = getattr(script, "inlined_graph", None)
    node = None if graph is None or not kind else graph.findNode(kind)
    found = None if node is None else SOURCE_LINE.search(node.sourceRange())
    return f"{found[1]}:{found[2]}" if found else ""
