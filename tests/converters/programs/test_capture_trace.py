"""`--capture trace`: what it keeps, what it freezes, and what is said of that."""

from __future__ import annotations

from torch_child import in_child


@in_child()
def test_auto_never_freezes_what_depends_on_data_and_trace_says_what_it_froze():
    import torch
    from captures import refusal
    from torch import nn

    from oprep.converters.programs.capture import capture
    from oprep.converters.programs.program import Example

    class Branch(nn.Module):
        def __init__(self, bound):
            super().__init__()
            self.bound = bound

        def forward(self, x):
            if x.sum() > self.bound:
                return x * 2
            return x - 1

    given = (Example("given", (torch.ones(3, 4),)),)
    for mode in ("auto", "export"):
        error = refusal(capture, Branch(0.0), mode=mode, given=given)
        assert error.exit_code == 3
        assert "--capture trace" in error.help
    error = refusal(capture, Branch(0.0), mode="trace", given=given)
    assert error.message == "the trace of `Branch` does not compute what the module computes"
    assert error.where.startswith("test_capture_trace.py:")
    assert "on input set `" in error.notes[0]
    program = capture(Branch(-1e30), mode="trace", given=given)
    assert program.capture == "trace"
    assert "is frozen" in program.notes[0]
    assert "test_capture_trace.py:" in program.notes[0]


@in_child()
def test_a_trace_keeps_nested_inputs_and_outputs_constants_parameters_and_names():
    import torch
    from torch import nn

    from oprep.converters.dynamic_dims import parse_dynamic
    from oprep.converters.programs.capture import capture
    from oprep.converters.programs.program import Example

    class Nested(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.unused = nn.Embedding(5, 4), nn.Linear(2, 2)
            self.register_buffer("shift", torch.ones(4), persistent=False)
            self.constant = torch.tensor(3.0)

        def forward(self, ids, batch, *, mask=None, scale=2):
            made = self.table(ids) * scale + batch["h"] + self.shift
            if mask is not None:
                made = made * mask
            return {"out": made * self.constant, "kept": 7, "none": None, "pair": (ids, made)}

    module = Nested()
    args = (torch.tensor([1, 2, 3]), {"h": torch.randn(3, 4)})
    kwargs = {"mask": torch.ones(3, 4), "scale": 2}
    program = capture(
        module,
        mode="trace",
        dynamic=parse_dynamic([f"{name}:0=n[1:9]" for name in ("ids", "batch_h", "mask")]),
        given=(Example("given", args, kwargs),),
    )
    signature = program.exported.graph_signature
    names = [spec.arg.name for spec in signature.input_specs if spec.kind.name == "USER_INPUT"]
    assert names == ["ids", "batch_h", "mask", "scale"]
    assert set(program.exported.state_dict) == set(module.state_dict())
    assert list(signature.parameters) == ["table.weight", "unused.weight", "unused.bias"]
    assert list(signature.non_persistent_buffers) == ["shift"]
    other = (torch.tensor([1, 2, 3, 4, 0]), {"h": torch.randn(5, 4)})
    given = {"mask": torch.rand(5, 4), "scale": 2}
    made, wanted = program.exported.module()(*other, **given), module(*other, **given)
    assert list(made) == list(wanted)
    assert (made["kept"], made["none"]) == (7, None)
    assert torch.allclose(made["out"], wanted["out"])
    assert torch.equal(made["pair"][0], other[0])
    assert program.notes == ()


@in_child()
def test_auto_traces_what_export_refuses_where_nothing_is_frozen_and_says_so():
    import torch
    from torch import nn

    from oprep.converters.programs import module_capture
    from oprep.converters.programs.capture import capture
    from oprep.converters.programs.program import Example

    class Plain(nn.Module):
        def forward(self, x):
            if torch.compiler.is_exporting():
                raise RuntimeError("not for exporters")
            return torch.nn.functional.gelu(x)

    program = capture(Plain(), given=(Example("given", (torch.ones(2),)),))
    assert program.capture == "trace"
    assert program.notes == ("captured by trace; torch.export refuses it: not for exporters",)
    assert module_capture.Wanted().mode == "auto"


@in_child()
def test_what_cannot_be_traced_either_ends_with_the_reason_of_export():
    import torch
    from captures import refusal
    from torch import nn

    from oprep.converters.programs.capture import capture
    from oprep.converters.programs.program import Example

    class Odd(nn.Module):
        def forward(self, x):
            if torch.compiler.is_exporting() or torch.jit.is_tracing():
                raise RuntimeError("not today")
            return x

    error = refusal(capture, Odd(), given=(Example("given", (torch.ones(2),)),))
    assert error.message == "`Odd` cannot be captured by torch.export"
    assert error.notes == ("not today",)
    assert error.where.startswith("test_capture_trace.py:")
    error = refusal(capture, Odd(), mode="trace", given=(Example("given", (torch.ones(2),)),))
    assert error.message == "`Odd` cannot be traced"
