"""Dims that may vary: from `--dynamic` to torch's `Dim`, and what the program makes of them.

torch.export checks a range against the guards of the traced code, but traces as if no dim were 0
or 1. So those two sizes are run, the original against the captured program.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from oprep.converters.dynamic_dims import OPTION, DynamicDim
from oprep.converters.programs.examples import listed
from oprep.converters.programs.input_leaves import Inputs
from oprep.converters.programs.input_names import bound, leaf_names
from oprep.converters.programs.program import Example
from oprep.opsets.errors import ExitCode, OprepError

FIX = re.compile(r"^\s+(\w+) = (.+?)\s*$", re.MULTILINE)
RANGE = re.compile(r"Dim\('\w+'(?:, min=(\d+))?(?:, max=(\d+))?\)")
DERIVED = re.compile(r"(?:(\d+)\*)?_\w+(?: \+ (\d+))?")
SMALLEST_TRACED = 2
MOST_ROUNDS = 8


@dataclass(frozen=True)
class Free:
    """One named dim: the places (leaf, axis) that have it, its bounds, and who set them.

    `asked` are the bounds that the user gave. Sizes are `times * n + plus`.
    """

    name: str
    places: tuple[tuple[int, int], ...]
    size: int
    asked: tuple[int | None, int | None]
    low: int | None
    high: int | None
    times: int = 1
    plus: int = 0
    why: str = "the program's own bound"

    def dim(self) -> Any:
        """Make torch's dim."""
        if (self.times, self.plus) == (1, 0):
            return Dim(self.name, min=self.low, max=self.high)
        root = Dim(f"_{self.name}")
        scaled = root * self.times if self.times > 1 else root
        return scaled + self.plus if self.plus else scaled

    def written(self, low: int | None, high: int | None) -> str:
        """Write the range as `batch[2:64]`."""
        ends = ("" if end is None else str(end) for end in (low, high))
        return f"{self.name}[{':'.join(ends)}]"


def free_dims(model: nn.Module, example: Example, dims: Sequence[DynamicDim]) -> tuple[Free, ...]:
    """Find the axes that were named; exit 2 for what is not there, with what is."""
    names = leaf_names(model, example.args, example.kwargs)
    values = pytree.tree_leaves((example.args, dict(example.kwargs)))
    found: dict[str, Free] = {}
    for dim in dims:
        index = _leaf(dim, names, values)
        size = values[index].shape[dim.axis]
        place = (index, dim.axis % values[index].dim())
        _require_size(dim, size, example.name)
        old = found.get(dim.name)
        if old is None:
            ends = (dim.low, dim.high)
            found[dim.name] = Free(dim.name, (place,), size, ends, *ends)
            continue
        if old.size != size:
            where = old.places[0]
            raise _refused(
                f"dim `{dim.name}` has two sizes in `{example.name}`",
                (f"axis {where[1]} of `{names[where[0]]}` has {old.size}, "
                 f"axis {place[1]} of `{dim.input}` has {size}",),
                "give the axes two names, or inputs that agree",
            )  # fmt: skip
        low = old.low if old.low is not None else dim.low
        high = old.high if old.high is not None else dim.high
        places = tuple(dict.fromkeys((*old.places, place)))
        found[dim.name] = Free(dim.name, places, size, (low, high), low, high)
    return tuple(found.values())


def _leaf(dim: DynamicDim, names: list[str], values: list[Any]) -> int:
    known = {name: index for index, name in enumerate(names) if isinstance(values[index], Tensor)}
    index = known.get(dim.input, known.get(dim.input.lower()))
    if index is None:
        raise _refused(
            f"there is no tensor input `{dim.input}`", (f"inputs are {listed(list(known))}",)
        )
    rank = values[index].dim()
    if not -rank <= dim.axis < rank:
        last = f"axes are 0 to {rank - 1}" if rank else "it has no axes"
        shape = f"it has shape {list(values[index].shape)}: {last}"
        raise _refused(f"input `{dim.input}` has no axis {dim.axis}", (shape,))
    return index


def _require_size(dim: DynamicDim, size: int, name: str) -> None:
    low, high = dim.low or 0, dim.high
    if size < low or (high is not None and size > high):
        raise _refused(
            f"the inputs do not lie in the range of dim `{dim.name}`",
            (f"asked for is {_range(low, high)}, axis {dim.axis} of `{dim.input}` has {size} "
             f"in `{name}`",),
            "widen the range, or give inputs of a size in it",
        )  # fmt: skip


def resized(example: Example, free: Sequence[Free], sizes: Mapping[str, int]) -> Example:
    """Repeat or cut an example along its free axes to other sizes, each tensor a new one."""
    values, spec = pytree.tree_flatten((example.args, dict(example.kwargs)))
    for item in free:
        for index, axis in item.places if item.name in sizes else ():
            old = values[index]
            rows = torch.arange(sizes[item.name], device=old.device) % max(old.shape[axis], 1)
            if not old.shape[axis] and sizes[item.name]:
                shape = list(old.shape)
                shape[axis] = sizes[item.name]
                values[index] = old.new_zeros(shape)
            else:
                values[index] = old.index_select(axis, rows).requires_grad_(old.requires_grad)
    args, kwargs = pytree.tree_unflatten(values, spec)
    return replace(example, args=tuple(args), kwargs=kwargs)


def traceable(example: Example, free: Sequence[Free]) -> Example:
    """Bring free dims of size 0 or 1 to 2: torch would take them for constants."""
    small = {
        item.name: min(SMALLEST_TRACED, item.high or SMALLEST_TRACED)
        for item in free
        if item.size < SMALLEST_TRACED
    }
    return resized(example, free, small) if small else example


def shapes(model: nn.Module, example: Example, free: Sequence[Free]) -> Any:
    """Write the dims in the form that torch.export wants: as the bound arguments are nested."""
    axes: dict[int, dict[int, Any]] = {}
    for item in free:
        dim = item.dim()
        for index, axis in item.places:
            axes.setdefault(index, {})[axis] = dim
    leaves, spec = pytree.tree_flatten((example.args, dict(example.kwargs)))
    marks = [_Mark(axes.get(index)) for index in range(len(leaves))]
    args, kwargs = pytree.tree_unflatten(marks, spec)
    return _written(bound(model, args, kwargs, example.name))


@dataclass(frozen=True)
class _Mark:
    """Stands for a leaf while containers are put together."""

    axes: dict[int, Any] | None


def _written(value: Any) -> Any:
    """Write marks as torch wants them: containers that are not Python's own become lists."""
    if isinstance(value, _Mark):
        return value.axes
    if type(value) is dict:
        return {key: _written(item) for key, item in value.items()}
    children, _ = pytree.SUPPORTED_NODES[type(value)].flatten_fn(value)
    made = [_written(child) for child in children]
    return tuple(made) if type(value) is tuple else made


def export_free(
    attempt: Callable[[Sequence[Free]], ExportedProgram],
    free: Sequence[Free],
    name: str,
) -> tuple[ExportedProgram, tuple[Free, ...]]:
    """Export, narrowing ranges as torch says; a range that the user gave is never narrowed."""
    now = tuple(free)
    for _ in range(MOST_ROUNDS):
        try:
            return attempt(now), now
        except Exception as error:  # torch's errors have no common type
            fixes = dict(FIX.findall(str(error).partition("Suggested fixes:")[2]))
            wanted = tuple(_fixed(item, fixes.get(item.name), fixes, name) for item in now)
            if wanted == now:
                raise
            now = wanted
    raise OprepError(
        f"the ranges of {listed([item.name for item in now])} cannot be settled",
        where=name,
        help=f"give ranges with `{OPTION}`",
        exit_code=ExitCode.MODEL,
    )


def _fixed(item: Free, fix: str | None, fixes: Mapping[str, str], name: str) -> Free:
    """Take what torch suggests for a dim; exit 3 where the user asked for something else."""
    if fix is None:
        return item
    if fix.isdigit():
        raise _contradicted(item, name, f"the program takes {fix} alone")
    bounds = RANGE.fullmatch(fix)
    if bounds is not None:
        low = item.low if bounds[1] is None else int(bounds[1])
        high = item.high if bounds[2] is None else int(bounds[2])
        if (item.asked[0] is not None and low != item.asked[0]) or (
            item.asked[1] is not None and high != item.asked[1]
        ):
            wider = item.written(low, high)
            fact = f"the program takes {_range(low, high)}"
            raise _contradicted(item, name, fact, f"ask for `{wider}`")
        return replace(item, low=low, high=high)
    derived = DERIVED.fullmatch(fix)
    if derived is not None and f"_{item.name}" in fix:
        times, plus = int(derived[1] or 1), int(derived[2] or 0)
        if item.asked != (None, None):
            fact = f"the program takes multiples of {times}" + (f" plus {plus}" if plus else "")
            raise _contradicted(item, name, fact, f"leave the range of `{item.name}` out")
        return replace(item, times=times, plus=plus)
    fact = f"the program has `{item.name} = {fix}`"
    help = f"give both axes the name `{fix}`" if fix.isidentifier() else ""
    raise _contradicted(item, name, fact, help)


def _range(low: int | None, high: int | None) -> str:
    if high is None:
        return f"{low} and more"
    return f"{low or 0} to {high}"


def _contradicted(item: Free, name: str, fact: str, help: str = "") -> OprepError:
    asked = (
        f"asked for is {_range(*item.asked)}" if item.asked != (None, None) else "asked for is any"
    )
    return OprepError(
        f"dim `{item.name}` cannot vary as asked in `{name}`",
        where=OPTION,
        notes=(f"{asked}, {fact}",),
        help=help,
        exit_code=ExitCode.MODEL,
    )


def notes_on(free: Sequence[Free]) -> tuple[str, ...]:
    """Tell bounds that the program set."""
    notes = []
    for item in free:
        low = item.low if item.asked[0] is None and (item.low or 0) > 1 else None
        high = item.high if item.asked[1] is None else None
        if (item.times, item.plus) != (1, 0):
            plus = f" plus {item.plus}" if item.plus else ""
            notes.append(f"dim `{item.name}` takes multiples of {item.times}{plus} only")
        elif low is not None or high is not None:
            notes.append(f"dim `{item.name}` takes {_range(item.low, item.high)}: {item.why}")
    return tuple(notes)


def symbol_names(exported: ExportedProgram, free: Sequence[Free]) -> dict[str, str]:
    """Give the user's names by symbol, where a dim is a symbol of its own."""
    leaves = Inputs(exported).leaves
    found = {}
    for item in free:
        index, axis = item.places[0]
        dim = leaves[index].dims[axis]
        if getattr(dim, "is_Symbol", False):
            found[str(dim)] = item.name
    return found


def _refused(
    message: str, notes: tuple[str, ...], help: str = "", exit_code: ExitCode = ExitCode.USAGE
) -> OprepError:
    return OprepError(message, where=OPTION, notes=notes, help=help, exit_code=exit_code)
