"""Generated sets: every kind, in the layout, range and sizes that the program takes."""

from __future__ import annotations

import pytest
from torch_child import in_child


def captured(module, args, kwargs=None, dims=None):
    import torch

    from oprep.converters.programs.capture import capture

    exported = torch.export.export(module, args, kwargs or {}, dynamic_shapes=dims)
    return capture(exported)


@in_child()
def test_sets_hold_every_kind_and_other_sizes_within_the_ranges():
    import torch
    from torch import nn
    from torch.export import Dim

    from oprep.converters.inputs import KINDS, OTHER_SCALE, SITES_ALONE
    from oprep.converters.programs.example_sets import example_sets
    from oprep.converters.programs.input_leaves import Inputs

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.places = nn.Embedding(50, 4), nn.Embedding(20, 4)

        def forward(self, ids, places, x, flags, image=None, *, scale=2.0):
            made = self.words(ids.view(-1)).view(*ids.shape, 4) + self.places(places + 2)
            return torch.where(flags, made, x) * scale

    n, s = Dim("n", min=1, max=9), Dim("s", min=2, max=16)
    ids = torch.zeros(3, 4, dtype=torch.int64)
    args = (ids, ids.clone(), torch.ones(3, 4, 1), torch.ones(3, 4, 1, dtype=torch.bool))
    both = {0: n, 1: s}
    dims = {"ids": both, "places": both, "x": both, "flags": both, "image": None, "scale": None}
    program = captured(Net(), (*args, None), {"scale": 3.0}, dims)
    sets = example_sets(program, seed=5)
    assert [item.name for item in sets[: len(KINDS) + 1]] == ["example", *KINDS]
    inputs, met = Inputs(program.exported), set()
    run = program.exported.module()
    for item in sets:
        words, places, x, flags, image, scale = inputs.flat(item.args, item.kwargs)
        assert (image, scale) == (None, 3.0)
        assert 0 <= int(words.min()) <= int(words.max()) < 50
        assert 0 <= int(places.min()) <= int(places.max()) < 18
        assert item.whole == (item.name not in SITES_ALONE)
        assert item.usual == (item.name not in OTHER_SCALE)
        met.add((words.shape[0], words.shape[1]))
        run(*item.args, **item.kwargs)
        if item.name == "normal":
            assert int(words.max()) > 8
            assert not torch.isnan(x).any()
    assert len(met) >= 3
    assert all(1 <= a <= 9 and 2 <= b <= 16 for a, b in met)
    flags = torch.cat([inputs.flat(item.args, item.kwargs)[3].view(-1) for item in sets])
    assert set(flags.tolist()) == {True, False}
    again = example_sets(program, seed=5)
    assert all(
        torch.equal(a, b)
        for one, other in zip(sets, again, strict=True)
        for a, b in zip(one.args[:4], other.args[:4], strict=True)
    )
    different = example_sets(program, seed=6)
    assert not torch.equal(different[1].args[2], sets[1].args[2])


@in_child()
def test_given_sets_stand_alone():
    import torch

    from oprep.converters.programs.example_sets import example_sets
    from oprep.converters.programs.program import Example

    program = captured(torch.nn.GELU(), (torch.ones(3),))
    given = (Example("mine", (torch.ones(3),)),)
    assert example_sets(program, given) == given


@in_child()
def test_values_that_decide_branches_are_tried():
    import torch
    from torch import nn

    from oprep.converters.programs.example_sets import example_sets

    class Branch(nn.Module):
        def forward(self, x, rate):
            return torch.cond(rate == 16000, lambda x: x * 2, lambda x: x - 1, (x,))

    program = captured(Branch(), (torch.ones(3), torch.tensor(8000)))
    rates = {int(item.args[1]) for item in example_sets(program)}
    assert {8000, 16000, 16001} <= rates


@in_child()
def test_integers_follow_tables_through_branches_and_regions_and_classes_of_a_loss():
    import torch
    from torch import nn

    from oprep.converters.programs.input_hints import input_hints

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(30, 4)

        def forward(self, x, ids, labels, index, free):
            with torch.no_grad():
                rows = self.table(ids[:, None])
            chosen = torch.cond(x.sum() > 0, lambda x, i: x[i], lambda x, i: x[i] + 1, (x, index))
            loss = torch.nn.functional.cross_entropy(x, labels)
            return rows.sum() + loss + chosen.sum() + free.sum()

    args = (torch.ones(5, 7), *(torch.zeros(5, dtype=torch.int64) for _ in range(4)))
    program = captured(Net(), args)
    found = input_hints(program.exported.graph_module)
    assert found["ids"].rows == 30
    assert found["labels"].rows == 7
    assert found["index"].rows == 5
    assert found["free"].rows is None


@in_child()
def test_an_examples_own_range_counts_where_the_graph_tells_nothing():
    import torch
    from torch import nn

    from oprep.converters.programs.example_sets import example_sets

    class Sum(nn.Module):
        def forward(self, x):
            return x.sum()

    program = captured(Sum(), (torch.tensor([1000, 2000, 1500]),))
    for item in example_sets(program):
        assert 1000 <= int(item.args[0].min()) <= int(item.args[0].max()) <= 2000


@in_child()
def test_layout_and_dtypes_are_those_that_the_program_met():
    import torch
    from torch import nn

    from oprep.converters.programs.example_sets import example_sets

    class Net(nn.Module):
        def forward(self, image, half, wide, small, number):
            return image.sum() + half.sum() + wide.sum().abs() + small.sum() + number

    args = (
        torch.ones(2, 3, 4, 5).to(memory_format=torch.channels_last),
        torch.ones(3, dtype=torch.bfloat16),
        torch.ones(3, dtype=torch.complex64),
        torch.ones(3, dtype=torch.uint8),
        4,
    )
    program = captured(Net(), args)
    for item in example_sets(program):
        assert item.args[0].is_contiguous(memory_format=torch.channels_last)
        assert [tensor.dtype for tensor in item.args[:4]] == [tensor.dtype for tensor in args[:4]]
        assert item.args[4] == 4


@in_child()
def test_derived_dims_and_free_numbers_get_values_that_agree():
    import torch
    from torch import nn
    from torch.export import Dim

    from oprep.converters.programs.example_sets import example_sets
    from oprep.converters.programs.input_leaves import Inputs

    class Net(nn.Module):
        def forward(self, x, y, k):
            return torch.cat([x, x]) + y + k

    half = Dim("half", min=2, max=20)
    args = (torch.ones(4, 3), torch.ones(8, 3), 5)
    dims = {"x": {0: half}, "y": {0: 2 * half}, "k": Dim.DYNAMIC}
    program = captured(Net(), args, dims=dims)
    assert [leaf.kind for leaf in Inputs(program.exported).leaves] == ["tensor", "tensor", "number"]
    run, met = program.exported.module(), set()
    for item in example_sets(program):
        x, y, k = item.args
        assert y.shape[0] == 2 * x.shape[0]
        assert torch.isfinite(run(x, y, k)).all() or item.name in ("huge",)
        met.add((x.shape[0], k))
    assert len(met) >= 3


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float16", "int16", "bool",
                                   "complex128", "uint8", "float64"])  # fmt: skip
@in_child()
def test_tensors_and_arrays_keep_dtype_shape_and_bits(dtype):
    import torch

    from oprep.converters.programs.tensors import to_array, to_tensor

    wanted = getattr(torch, dtype)
    for shape in ((), (0, 3), (2, 3)):
        tensor = (torch.rand(shape) * 4).to(wanted)
        array = to_array(tensor)
        assert array.shape == shape
        back = to_tensor(array)
        assert back.dtype is wanted
        assert torch.equal(back.view(torch.uint8) if shape == (2, 3) and dtype != "bool" else
                           back.to(torch.complex128), tensor.view(torch.uint8)
                           if shape == (2, 3) and dtype != "bool"
                           else tensor.to(torch.complex128))  # fmt: skip
        array.reshape(-1)[:1] = 0
    transposed = torch.arange(6).reshape(2, 3).t()
    assert torch.equal(to_tensor(to_array(transposed)), transposed)
