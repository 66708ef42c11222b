"""Dims that may vary: bounds asked for, found, narrowed or contradicted, and small sizes tried."""

from __future__ import annotations

import pytest
from torch_child import in_child


def net(function, keywords=False):
    from torch import nn

    class One(nn.Module):
        def forward(self, x):
            return function(x)

    class Two(nn.Module):
        def forward(self, x, y):
            return function(x, y)

    import inspect

    return (One if len(inspect.signature(function).parameters) == 1 else Two)()


def freed(function, *dynamic, shape=(4, 3), module=None):
    import inspect

    import torch

    from oprep.converters.dynamic_dims import parse_dynamic
    from oprep.converters.programs.capture import capture
    from oprep.converters.programs.program import Example

    args = tuple(torch.randn(shape) for _ in inspect.signature(function).parameters)
    program = capture(
        net(function), dynamic=parse_dynamic(dynamic), given=(Example("given", args),)
    )
    ranges = program.exported.range_constraints
    bounds = {
        name: (int(ranges[s].lower), str(ranges[s].upper))
        for s in ranges
        for symbol, name in program.dims.items()
        if str(s) == symbol
    }
    return program, bounds


@in_child()
def test_bounds_asked_for_are_kept_and_bounds_left_open_are_found():
    _, bounds = freed(lambda x: x * 2, "x:0=batch[1:64]")
    assert bounds == {"batch": (1, "64")}
    program, bounds = freed(lambda x: x * 2, "x:0=batch")
    assert bounds == {"batch": (0, "int_oo")}
    assert program.notes == ()
    program, bounds = freed(lambda x: x * 2 if x.shape[0] > 3 else x, "x:0=batch")
    assert bounds == {"batch": (4, "int_oo")}
    assert program.notes == ("dim `batch` takes 4 and more: the program's own bound",)
    program, bounds = freed(lambda x: x.max(0).values, "x:0=batch")
    assert bounds == {"batch": (1, "int_oo")}
    program, bounds = freed(lambda x: x * 2, "x:-1=width[:8]", "x:0=batch[2:]")
    assert bounds == {"width": (0, "8"), "batch": (2, "int_oo")}


@in_child()
def test_sizes_0_and_1_are_run_because_torch_never_traces_them():
    special = "dim `batch` takes 2 and more: at 1 the program gives another result than the model"
    program, bounds = freed(lambda x: x * 2 if x.shape[0] == 1 else x, "x:0=batch")
    assert (program.notes, bounds) == ((special,), {"batch": (2, "int_oo")})
    from captures import refusal

    error = refusal(freed, lambda x: x * 2 if x.shape[0] == 1 else x, "x:0=batch[1:64]")
    assert error.exit_code == 3
    assert error.message == "dim `batch` cannot have size 1 in `One`"
    assert "`batch[1:64]`" in error.notes[0]
    assert error.help == "ask for `batch[2:64]`"
    program, bounds = freed(lambda x: x * 2, "x:0=batch", shape=(1, 3))
    assert bounds == {"batch": (0, "int_oo")}
    assert program.examples[0].args[0].shape == (1, 3)


CONTRADICTED = [
    (lambda x: x * 2 if x.shape[0] > 3 else x, ("x:0=n[1:64]",),
     "asked for is 1 to 64, the program takes 4 to 64", "`n[4:64]`"),
    (lambda x: x * 2 if x.shape[0] < 9 else x, ("x:0=n[2:64]",),
     "asked for is 2 to 64, the program takes 2 to 8", "`n[2:8]`"),
    (lambda x: x + x.new_ones(4, 3), ("x:0=n",), "the program takes 4 alone", ""),
    (lambda x: x.view(-1, 2, 3), ("x:0=n[1:8]",), "multiples of 2", "leave the range"),
    (lambda x, y: x + y, ("x:0=n", "y:0=m"), "`m = n`", "give both axes the name `n`"),
]  # fmt: skip


@in_child()
def test_what_the_program_contradicts_is_shown_with_both_sides():
    from captures import refusal

    for function, dynamic, fact, help in CONTRADICTED:
        error = refusal(freed, function, *dynamic)
        assert (error.exit_code, error.where) == (3, "--dynamic")
        assert fact in error.notes[0], str(error)
        assert help in error.help, str(error)


@in_child()
def test_multiples_are_told_and_run():
    import torch

    program, _ = freed(lambda x: x.view(-1, 2, 3), "x:0=n")
    assert program.notes == ("dim `n` takes multiples of 2 only",)
    assert program.exported.module()(torch.ones(6, 3)).shape == (3, 2, 3)


@in_child()
def test_one_name_is_one_size_and_two_names_are_two():
    import torch

    program, _ = freed(lambda x, y: x.sum() + y.sum(), "x:0=n", "y:0=n")
    with pytest.raises((RuntimeError, AssertionError)):
        program.exported.module()(torch.ones(5, 3), torch.ones(6, 3))
    program, _ = freed(lambda x, y: x.sum() + y.sum(), "x:0=n", "y:0=m")
    assert program.exported.module()(torch.ones(5, 3), torch.ones(6, 3)) == 33


@in_child()
def test_nested_keyword_and_extra_inputs_are_named_flat():
    import torch
    from torch import nn

    from oprep.converters.dynamic_dims import parse_dynamic
    from oprep.converters.programs.capture import capture
    from oprep.converters.programs.program import Example

    class Net(nn.Module):
        def forward(self, x, batch, *rest, mask=None, **more):
            return x + batch["a"][0] + rest[0] + mask + more["extra"]

    x = torch.randn(4, 3)
    names = ("x", "batch_a_0", "rest_0", "mask", "extra")
    program = capture(
        Net(),
        dynamic=parse_dynamic([f"{name}:0=n[1:9]" for name in names]),
        given=(Example("given", (x, {"a": (x, None)}, x), {"extra": x, "mask": x}),),
    )
    specs = program.exported.graph_signature.input_specs
    assert [spec.arg.name for spec in specs] == [
        "x", "batch_a_0", "batch_a_1", "rest_0", "mask", "extra"
    ]  # fmt: skip
    y = torch.ones(7, 3)
    made = program.exported.module()(y, {"a": (y, None)}, y, extra=y, mask=y)
    assert torch.equal(made, 5 * y)


@in_child()
def test_fields_of_a_dataclass_can_vary():
    import dataclasses

    import torch
    from torch import nn

    from oprep.converters.dynamic_dims import parse_dynamic
    from oprep.converters.programs.capture import capture
    from oprep.converters.programs.example_sets import example_sets
    from oprep.converters.programs.program import Example

    @dataclasses.dataclass
    class Batch:
        x: torch.Tensor
        mask: torch.Tensor

    class Net(nn.Module):
        def forward(self, batch):
            return batch.x * batch.mask

    torch.export.register_dataclass(Batch, serialized_type_name="test.Batch")
    x = torch.randn(4, 3)
    program = capture(
        Net(),
        dynamic=parse_dynamic(["batch_x:0=n", "batch_mask:0=n"]),
        given=(Example("given", (Batch(x, x),)),),
    )
    sizes = {item.args[0].x.shape[0] for item in example_sets(program)}
    assert len(sizes) >= 3
    y = torch.ones(7, 3)
    assert torch.equal(program.exported.module()(Batch(y, y * 2)), y * 2)


@in_child()
def test_inputs_and_axes_that_are_not_there_are_refused_with_what_there_is():
    from captures import refusal

    cases = {
        "z:0=n": "there is no tensor input `z`",
        "x:2=n": "input `x` has no axis 2",
        "x:-3=n": "input `x` has no axis -3",
        "x:0=n[8:9]": "do not lie in the range of dim `n`",
    }
    for text, message in cases.items():
        error = refusal(freed, lambda x: x * 2, text)
        assert error.exit_code == 2
        assert message in error.message
    error = refusal(freed, lambda x, y: x.sum() + y.sum(), "x:0=n", "y:1=n")
    assert "two sizes" in error.message
    assert "has 4" in error.notes[0]
    assert "has 3" in error.notes[0]
