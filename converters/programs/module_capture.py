"""A module as a program: through torch.export, or by a trace where that is wanted or harmless."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch.utils._pytree as pytree
from torch import Tensor, nn
from torch.export import ExportedProgram
from torch.nn.parameter import is_lazy

from oprep.converters.dynamic_dims import DynamicDim
from oprep.converters.program_inputs import Given
from oprep.converters.programs import dynamic as dims
from oprep.converters.programs import tracing
from oprep.converters.programs.example_sets import example_sets
from oprep.converters.programs.exporting import export, reason, refused
from oprep.converters.programs.given_calls import bound_to_program, first_call
from oprep.converters.programs.held import private_copy
from oprep.converters.programs.input_names import explicit, in_order
from oprep.converters.programs.program import Example, Program
from oprep.converters.programs.small_sizes import run, same, with_small_sizes
from oprep.converters.programs.user_code import calling
from oprep.opsets.errors import ExitCode, OprepError

HOW_TO_GIVE = {
    "factory": "write `example_inputs()` beside the factory, or pass `--inputs`",
    "object": "pass `inputs`, as `inputs=(x,)`",
}
OTHER_SEED = 1


@dataclass(frozen=True)
class Wanted:
    """How to capture: the mode, dims that may vary, and input sets that the user gave."""

    mode: str = "auto"
    dynamic: tuple[DynamicDim, ...] = ()
    given: tuple[Given | Example, ...] = ()


@dataclass(frozen=True)
class Subject:
    """A module to capture, how it is called in messages, and the call to capture it with."""

    model: nn.Module
    name: str
    example: Example


@dataclass(frozen=True)
class Exported:
    """A program, its free dims as far as torch settled them, and how to export with others."""

    program: ExportedProgram
    free: tuple[dims.Free, ...]
    again: Callable[[Sequence[dims.Free]], ExportedProgram]


def call_of(
    model: nn.Module | None,
    signature: inspect.Signature,
    name: str,
    format: str,
    own: Sequence[Example],
    wanted: Wanted,
) -> Example:
    """Find the call to capture with; exit 3 where nothing tells it."""
    example = first_call(wanted.given, own, signature, model)
    if example is None:
        raise OprepError(
            f"nothing tells which inputs `{name}` takes",
            where=name,
            notes=(f"`forward` takes {signature}"[:200],),
            help=HOW_TO_GIVE.get(format, "pass `--inputs`"),
            exit_code=ExitCode.MODEL,
        )
    return example


def capture_module(
    model: nn.Module, name: str, format: str, own: Sequence[Example], wanted: Wanted
) -> Program:
    """Capture a module; it is copied first, so whatever a trace does to it is lost."""
    _require_shapes(model, name)
    example = call_of(model, inspect.signature(model.forward), name, format, own, wanted)
    ordered = in_order(model, example.args, example.kwargs, example.name)
    subject = Subject(model, name, separate(replace(example, kwargs=ordered), model))
    if wanted.mode == "trace":
        return _traced(subject, format, own, wanted, ())
    try:
        exported = _exported(subject, wanted)
    except OprepError:
        raise
    except Exception as error:  # torch's errors have no common type
        return _without_export(subject, format, own, wanted, error)
    return finished(subject, exported, (format, "export"), own, wanted, ())


def _require_shapes(model: nn.Module, name: str) -> None:
    """Refuse lazy modules: each run of a copy would draw weights of its own."""
    lazy = [key for key, tensor in model.named_parameters() if is_lazy(tensor)]
    if lazy:
        raise OprepError(
            f"`{name}` has parameters without a shape yet",
            where=name,
            notes=(f"`{lazy[0]}` gets its shape in the first run",),
            help="run the module once on its inputs first",
            exit_code=ExitCode.MODEL,
        )


def separate(example: Example, model: nn.Module) -> Example:
    """Let no tensor be two inputs, or an input and a parameter: torch would take them for one."""
    values, spec = pytree.tree_flatten((example.args, dict(example.kwargs)))
    met = {id(tensor) for tensor in (*model.parameters(), *model.buffers())}
    for index, value in enumerate(values):
        if isinstance(value, Tensor):
            if id(value) in met:
                values[index] = value.detach().clone().requires_grad_(value.requires_grad)
            met.add(id(value))
    args, kwargs = pytree.tree_unflatten(values, spec)
    return replace(example, args=tuple(args), kwargs=kwargs)


def _exported(subject: Subject, wanted: Wanted) -> Exported:
    """Export without running Python by symbol first, then with; the first refusal counts."""
    try:
        return export_as_wanted(subject, wanted, strict=False)
    except OprepError:
        raise
    except Exception as refusal:
        try:
            return export_as_wanted(subject, wanted, strict=True)
        except Exception:
            raise refusal from None


def export_as_wanted(
    subject: Subject,
    wanted: Wanted,
    *,
    strict: bool,
    copied: Callable[[nn.Module], nn.Module] = private_copy,
) -> Exported:
    """Export with the dims that may vary; raises what torch raises."""
    free = dims.free_dims(subject.model, subject.example, wanted.dynamic)
    example = dims.traceable(subject.example, free)

    def attempt(now: Sequence[dims.Free]) -> ExportedProgram:
        model = copied(subject.model)
        shapes = dims.shapes(model, example, now) if now else None
        if now:
            explicit(model, example.kwargs)
        return export(model, example, shapes, strict=strict)

    exported, settled = dims.export_free(attempt, free, subject.name)
    return Exported(exported, settled, attempt)


def finished(
    subject: Subject,
    exported: Exported,
    how: tuple[str, str],
    own: Sequence[Example],
    wanted: Wanted,
    notes: tuple[str, ...],
) -> Program:
    """Compare with the module, try small sizes, bind the given sets, put the program together."""
    program, free = exported.program, exported.free
    traced = dims.traceable(subject.example, free)
    said = (*notes, *checked(replace(subject, example=traced), program, own))
    settled = with_small_sizes(subject.model, program, subject.example, free, subject.name)
    if any(new.low != (old.low or 0) for old, new in zip(free, settled, strict=True)):
        program = exported.again(settled)
    said = (*said, *dims.notes_on(settled))
    names = dims.symbol_names(program, settled)
    bare = Program(program, subject.name, *how, (), said, names)
    return replace(
        bare, examples=bound_to_program(bare, wanted.given or (subject.example, *own[1:]))
    )


def checked(subject: Subject, exported: ExportedProgram, own: Sequence[Example]) -> tuple[str, ...]:
    """Run module and program once on the example: exit 3 where they differ.

    A module that differs from itself cannot be compared; then a note says so.
    """
    example = subject.example
    wanted = _run(subject, own)
    try:
        fault = "" if same(wanted, run(exported.module(), example)) else "gives another result"
    except Exception as error:  # a guard or an op
        fault = f"fails: {reason(error)}"
    if not fault:
        return ()
    if not same(wanted, run(subject.model, example)):
        return (f"`{subject.name}` gives different results for the same inputs",)
    raise OprepError(
        f"the capture of `{subject.name}` does not compute what the module computes",
        where=subject.name,
        notes=(f"on input set `{example.name}` the captured program {fault}",),
        help="look for values that `forward` computes outside of torch",
        exit_code=ExitCode.MODEL,
    )


def _without_export(
    subject: Subject, format: str, own: Sequence[Example], wanted: Wanted, error: Exception
) -> Program:
    """Trace what torch.export refuses, where `auto` lets it and nothing is frozen by that."""
    _run(subject, own)
    advice = "pass `--capture trace` to freeze what depends on data"
    if wanted.mode == "export":
        raise refused(subject.name, error, advice) from error
    note = f"captured by trace; torch.export refuses it: {reason(error)}"
    try:
        return _traced(subject, format, own, wanted, (note,))
    except OprepError as second:
        raise refused(subject.name, error, _advice(second, advice)) from error


def _run(subject: Subject, own: Sequence[Example]) -> list[Any]:
    """Run the module itself; where it fails on its inputs, that is what there is to say."""
    example = subject.example
    ours = example.name in [item.name for item in own]
    origin = f"`{example.name}`" if ours else "the inputs that are given"
    with calling(f"`{subject.name}`", subject.name, f"check that {origin} are what it takes"):
        return run(subject.model, example)


def _advice(second: OprepError, advice: str) -> str:
    frozen = isinstance(second, FrozenError)
    return advice if frozen else ""


class FrozenError(OprepError):
    """A trace would freeze what depends on data, and nobody asked for one."""


def _traced(
    subject: Subject,
    format: str,
    own: Sequence[Example],
    wanted: Wanted,
    notes: tuple[str, ...],
) -> Program:
    found = tracing.trace(private_copy(subject.model), subject.example, subject.name)
    if found.frozen and wanted.mode == "auto":
        raise FrozenError(f"a trace of `{subject.name}` would freeze what depends on data")
    replay = Subject(found.module, subject.name, subject.example)
    try:
        exported = export_as_wanted(replay, wanted, strict=False, copied=lambda it: it)
    except OprepError:
        raise
    except Exception as error:
        help = "leave `--dynamic` out" if wanted.dynamic else ""
        raise refused(subject.name, error, help) from error
    notes = (*notes, *tracing.frozen_note(found))
    program = finished(subject, exported, (format, "trace"), own, wanted, notes)
    others = [item for item in example_sets(program, (), OTHER_SEED) if item.whole]
    tracing.compare(subject.model, program.exported, found, others, subject.name)
    return program
