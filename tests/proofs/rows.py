"""Every row of the vocabulary as models beside torch's answer: form, opset, dtype and setting."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import helper
from proofs.samples import FIXED, REFUSED, SAMPLES, VALUES, Sample

from oprep.converters.frontends import onnx_emit
from oprep.converters.frontends.onnx_calls import TENSOR_KINDS
from oprep.converters.frontends.onnx_schema import newest_opset, versions
from oprep.opsets.errors import OprepError
from oprep.opsets.expression import walk
from oprep.opsets.rule import REQUIRED
from oprep.opsets.syntax import Call, Equation, Expression, ListOf, Name, Statement
from oprep.opsets.vocabulary import OLDEST_OPSET, Function, OnnxForm, vocabulary

DTYPES = ("float32", "float16", "float64", "int64", "int32", "uint8")
TESTED = "under_test"


@dataclass(frozen=True)
class Case:
    """One model of one row, its inputs, and what torch says."""

    function: str
    form: int
    opset: int
    dtype: str
    sample: Sample
    model: bytes
    feeds: dict[str, NDArray[Any]]
    expected: list[NDArray[Any]]

    def __str__(self) -> str:
        settings = ", ".join(f"{key}={value!r}" for key, value in self.sample.keywords.items())
        inputs = ", ".join(map(str, self.sample.tensors))
        return (
            f"{self.function}({inputs}{', ' if settings else ''}{settings})"
            f" form {self.form}, opset {self.opset}, {self.dtype}"
        )


def boundaries(form: OnnxForm) -> list[int]:
    """List the opsets at which the form or an op in it begins, ends or changes."""
    last = form.until or newest_opset()
    changes = {form.since, last}
    for op in ops_of(form):
        for version in versions("", op):
            changes |= {version - 1, version}
    return sorted(opset for opset in changes if max(form.since, OLDEST_OPSET) <= opset <= last)


def ops_of(form: OnnxForm) -> set[str]:
    """List the ONNX ops that a form names."""
    if form.equation is None:
        return {form.op}
    roots = [*(part.value for part in form.equation.statements), *form.equation.results]
    calls = [part for root in roots for part in walk(root) if isinstance(part, Call)]
    return {part.function for part in calls if part.domain == ""}


def cases(
    function: Function, dtypes: Sequence[str] = DTYPES, *, few: bool = False
) -> Iterator[Case]:
    """Give all models of a function: each form at each of its boundaries, each sample and dtype.

    With `few` only the first and the last opset of a form are tried.
    """
    for number, form in enumerate(function.onnx):
        alone = replace(function, name=TESTED, onnx=(replace(form, emit=True),))
        opsets = boundaries(form)
        for opset in sorted({opsets[0], opsets[-1]}) if few else opsets:
            for sample in (*SAMPLES[function.name], *REFUSED.get(function.name, ())):
                for dtype in dtypes if _takes_dtype(sample) else (_fixed_dtype(sample),):
                    if form.agrees_on(dtype):
                        yield from _case(function.name, number, alone, opset, dtype, sample)


def _takes_dtype(sample: Sample) -> bool:
    return any(name in VALUES for name in names_of(sample))


def _fixed_dtype(sample: Sample) -> str:
    return str(FIXED[names_of(sample)[0]].dtype)


def names_of(sample: Sample) -> list[str]:
    nested = [item if isinstance(item, tuple) else (item,) for item in sample.tensors]
    named = [
        name
        for key, name in sample.keywords.items()
        if key in ("weight", "bias") and isinstance(name, str)
    ]
    return [*(name for names in nested for name in names), *named]


def _case(
    name: str, number: int, function: Function, opset: int, dtype: str, sample: Sample
) -> Iterator[Case]:
    feeds = {key: array(key, dtype) for key in names_of(sample)}
    model = build(function, opset, sample, feeds)
    expected = torch_answer(name, sample, feeds) if model is not None else None
    if model is not None and expected is not None:
        yield Case(name, number, opset, dtype, sample, model, feeds, expected)


def array(name: str, dtype: str) -> NDArray[Any]:
    if name in FIXED:
        return FIXED[name]
    values = VALUES[name]
    if dtype == "uint8":
        values = np.abs(values)
    if dtype in ("int64", "int32", "uint8"):
        # zero divides nothing, and NaN is no integer
        values = np.where(np.isfinite(values), np.trunc(values), 1)
        values = np.where((values == 0) & (name in ("y", "row")), 3, values)
    return values.astype(dtype)


def build(
    function: Function, opset: int, sample: Sample, feeds: Mapping[str, NDArray[Any]]
) -> bytes | None:
    """Write one call as a model; None where the row says that it does not hold here."""
    types = {key: helper.np_dtype_to_tensor_dtype(value.dtype) for key, value in feeds.items()}
    outputs = results_of(function, sample)
    with pytest.MonkeyPatch.context() as patch:
        table = {**vocabulary(), TESTED: function}
        patch.setattr(onnx_emit, "vocabulary", lambda: table)
        try:
            emitted = onnx_emit.emit(
                call_of(TESTED, function, sample, outputs),
                {key: key for key in feeds},
                opset=opset,
                fresh=_namer(),
                dtype=types,
                attributes={f"{key}_value": value for key, value in sample.keywords.items()},
                shape_of=lambda key: feeds[key].shape if key in feeds else None,
            )
        except OprepError:
            return None
    inputs = [
        helper.make_tensor_value_info(key, types[key], value.shape) for key, value in feeds.items()
    ]
    results = [onnx.ValueInfoProto(name=output) for output in emitted.outputs]
    graph = helper.make_graph(emitted.nodes, "row", inputs, results)
    imports = [helper.make_opsetid("", opset)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    return bytes(model.SerializeToString())


def writes(function: Function, opset: int, sample: Sample) -> bool:
    """Tell whether some form of a function can be written for a call on float32."""
    feeds = {key: array(key, "float32") for key in names_of(sample)}
    return build(replace(function, name=TESTED), opset, sample, feeds) is not None


def _namer() -> Any:
    count = iter(range(10_000))
    return lambda hint: f"{hint}.{next(count)}"


def arguments(function: Function, sample: Sample) -> dict[str, Any]:
    """Give what a sample says of each parameter: names of tensors (`Name`s), or a plain value."""
    found: dict[str, Any] = {}
    tensors = iter(sample.tensors)
    for parameter in function.parameters:
        if parameter.name in sample.keywords:
            found[parameter.name] = sample.keywords[parameter.name]
        elif parameter.kind in TENSOR_KINDS and (item := next(tensors, None)) is not None:
            found[parameter.name] = (
                tuple(map(Name, item)) if isinstance(item, tuple) else Name(item)
            )
        if parameter.kind == "optional" and isinstance(found.get(parameter.name), str):
            found[parameter.name] = Name(found[parameter.name])
    assert next(tensors, None) is None, (function.name, sample)
    return found


def results_of(function: Function, sample: Sample) -> int:
    """Count the results of a call: a split has as many as it makes parts."""
    return function.outputs or sample.parts


def call_of(name: str, function: Function, sample: Sample, outputs: int) -> Equation:
    """Write a sample as an equation: tensors by their names, a plain `p` as `p_value`."""
    arguments_ = arguments(function, sample)
    positional: list[Expression] = []
    keywords: list[tuple[str, Expression]] = []
    for parameter in function.parameters:
        if parameter.name not in arguments_:
            continue
        value = arguments_[parameter.name]
        said: Expression = (
            ListOf(value)
            if isinstance(value, tuple)
            else value
            if isinstance(value, Name)
            else Name(f"{parameter.name}_value")
        )
        if parameter.default is REQUIRED and not keywords:
            positional.append(said)
        else:
            keywords.append((parameter.name, said))
    made = Call(name, tuple(positional), tuple(keywords))
    if outputs == 1:
        return Equation((), (made,))
    targets = tuple(f"result_{i}" for i in range(outputs))
    return Equation((Statement(targets, made),), tuple(map(Name, targets)))


def torch_answer(
    name: str, sample: Sample, feeds: Mapping[str, NDArray[Any]]
) -> list[NDArray[Any]] | None:
    """Ask the torch function of that name; None where torch refuses these inputs."""
    import torch

    # small tensors: threads of a pool would only wait for each other
    torch.set_num_threads(1)
    tensors = {key: torch.from_numpy(value.copy()) for key, value in feeds.items()}
    try:
        result = called(name, sample, tensors)
    except (RuntimeError, TypeError, IndexError):
        return None
    many = list(result) if isinstance(result, tuple | list) else [result]
    return [item.numpy() for item in many[: results_of(vocabulary()[name], sample)]]


def called(name: str, sample: Sample, tensors: Mapping[str, Any]) -> Any:
    """Call the torch function of a name as a sample says."""
    function = vocabulary()[name]
    given = {
        key: [tensors[item.name] for item in value]
        if isinstance(value, tuple)
        else tensors[value.name]
        if isinstance(value, Name)
        else value
        for key, value in arguments(function, sample).items()
    }
    positional = [
        given.pop(item.name)
        for item in function.parameters
        if item.default is REQUIRED and item.name in given
    ]
    return torch_function(name)(*positional, **given)


FUNCTIONAL = frozenset({"celu", "selu", "dropout", "prelu", "embedding", "threshold", "batch_norm",
                        "instance_norm", "adaptive_max_pool1d"})  # fmt: skip
"""Functions that torch has under the same name with other defaults; that of `functional` counts."""


def torch_function(name: str) -> Any:
    """Find the torch function of a name."""
    import torch

    own = {
        "cast": lambda input, dtype: input.to(getattr(torch, dtype)),
        "einsum": lambda equation, operands: torch.einsum(equation, *operands),
        "slice": torch.ops.aten.slice.Tensor,
    }
    homes = (torch, torch.nn.functional, torch.Tensor, torch.linalg)
    homes = homes[1:] if name in FUNCTIONAL else homes
    return own.get(name) or next(getattr(home, name) for home in homes if hasattr(home, name))
