"""What a class declares, what is read off it, and what breaks it."""

from __future__ import annotations

import pytest
from torch_child import in_child

SCHEMAS = [
    ("x", "(Tensor x) -> Tensor"),
    ("x, y", "(Tensor x, Tensor y) -> Tensor"),
    ("x, eps=1e-05", "(Tensor x, float eps=1e-05) -> Tensor"),
    ("x, n=3, flag=True", "(Tensor x, SymInt n=3, bool flag=True) -> Tensor"),
    ("x, mode='none'", '(Tensor x, str mode="none") -> Tensor'),
    ("x, bias=None", "(Tensor x, Tensor? bias=None) -> Tensor"),
    ("x: torch.Tensor, n: int", "(Tensor x, SymInt n) -> Tensor"),
    ("x: torch.Tensor | None", "(Tensor? x) -> Tensor"),
    ("xs: list[torch.Tensor]", "(Tensor[] xs) -> Tensor"),
    ("xs: Sequence[torch.Tensor | None]", "(Tensor?[] xs) -> Tensor"),
    ("x, dims: list[int] = (1, 2)", "(Tensor x, SymInt[] dims=[1, 2]) -> Tensor"),
    ("x, p: int | float = 2", "(Tensor x, Scalar p=2) -> Tensor"),
    ("x, p: float | None = None", "(Tensor x, float? p=None) -> Tensor"),
    ("x, dtype: torch.dtype | None = None", "(Tensor x, ScalarType? dtype=None) -> Tensor"),
    ("x, w: torch.nn.Parameter", "(Tensor x, Tensor w) -> Tensor"),
    ("x) -> tuple[torch.Tensor, torch.Tensor]:#", "(Tensor x) -> (Tensor, Tensor)"),
    ("x) -> list[torch.Tensor]:#", "(Tensor x) -> Tensor[]"),
    ("x) -> None:#", "(Tensor x) -> ()"),
]


def written(parameters):
    """Make a class of the text of its parameters."""
    import oprep

    names: dict = {}
    text = (
        "import torch\nfrom collections.abc import Sequence\n"
        f"def forward(ctx, {parameters}): return x"
    )
    if ":#" in parameters:
        text = text.replace("): return x", "").replace(":#", ": return x")
    exec(text, names)
    return type(oprep.Rp)("Written", (oprep.Rp,), {"forward": staticmethod(names["forward"])})


@in_child()
@pytest.mark.parametrize(("parameters", "schema"), SCHEMAS)
def test_the_schema_is_read_off_forward(parameters, schema):
    import torch

    from oprep.opsets.rp.schema import infer

    found = infer(written(parameters), ())
    assert found == schema
    assert torch._C.parse_schema(f"a::b{found}")


@in_child()
@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ("*xs", "takes `\\*xs`"),
        ("x, *, eps=1.0", "takes `eps=1.0`"),
        ("x, shape: dict", "parameter `shape` of `forward` has no type"),
        ("x) -> int:#", "gives `<class 'int'>`"),
        ("x: 'Missing'", "annotations of `forward` .* cannot be read"),
    ],
)
def test_a_forward_that_no_schema_can_say_is_refused(parameters, message):
    import oprep
    from oprep.opsets.rp.schema import infer

    with pytest.raises(oprep.OprepError, match=message):
        infer(written(parameters), ())


@in_child()
def test_a_given_schema_wins_and_may_have_keyword_only_arguments():
    import torch

    import oprep

    class Scaled(oprep.Rp):
        @staticmethod
        def forward(ctx, x, factor, shift):
            ctx.factor = factor
            return x * factor + shift

        @staticmethod
        def backward(ctx, grad):
            return grad * ctx.factor, None, None

    schema = "(Tensor x, *, float factor=2, float shift=0.5) -> Tensor"
    op = oprep.register_autograd("rp_test::scaled", Scaled, schema=schema)
    x = torch.ones(2, requires_grad=True)
    assert op(x).tolist() == [2.5, 2.5]
    assert op(x, shift=1.0, factor=3.0).tolist() == [4, 4]
    (grad,) = torch.autograd.grad(op(x, factor=3.0).sum(), x)
    assert grad.tolist() == [3, 3]
    compiled = torch.compile(lambda x: op(x, factor=3.0), backend="aot_eager", fullgraph=True)
    assert torch.autograd.grad(compiled(x).sum(), x)[0].tolist() == [3, 3]
    assert torch.vmap(op)(x.detach()).tolist() == [2.5, 2.5]
    with torch.autocast("cpu"):
        assert op(x, factor=4.0).tolist() == [4.5, 4.5]


@in_child()
def test_the_contract_of_an_op_can_be_asked():
    import torch
    from rp_examples import Mask, Seven, seven

    import oprep
    from oprep.opsets.rp import class_of, contract_of, is_registered, registered

    op = seven()
    for name in ("rp_test::seven", op, torch.ops.rp_test.seven):
        assert contract_of(name).schema == "(Tensor x, float scale=1.0) -> Tensor"
    assert contract_of(oprep.register_autograd(Mask)).random
    assert class_of(op) is Seven
    assert is_registered("rp_test::seven")
    assert not is_registered("rp_test::eight")
    assert "rp_test::seven" in registered()
    with pytest.raises(oprep.OprepError, match="`aten::gelu` is no op that was registered here"):
        contract_of(torch.ops.aten.gelu.default)


@in_child()
def test_the_same_definition_again_is_the_same_op_and_another_one_is_an_error():
    from rp_examples import Double, Seven, seven

    import oprep

    assert oprep.register_autograd(Seven) is seven()

    def same():
        class Same(oprep.Rp):
            @staticmethod
            def forward(ctx, x):
                return x * 3

        return Same

    first = oprep.register_autograd("rp_test::same", same())
    assert oprep.register_autograd("rp_test::same", same()) is first
    with pytest.raises(oprep.OprepError, match=r"registered already.*\n.*\n.*register_composite"):
        oprep.register_autograd("rp_test::same", Double)
    with pytest.raises(oprep.OprepError, match="registered already"):
        oprep.register_autograd("rp_test::same", same(), double_backward=True)


@in_child()
def test_an_op_of_another_library_is_not_overwritten():
    import torch
    from rp_examples import Double

    import oprep

    torch.library.define("rp_foreign::twice", "(Tensor x) -> Tensor")
    with pytest.raises(oprep.OprepError, match="is an op of another library"):
        oprep.register_autograd("rp_foreign::twice", Double)
    with pytest.raises(oprep.OprepError, match="is an op of another library"):
        oprep.register_autograd("aten::gelu", Double)


@in_child()
@pytest.mark.parametrize(
    ("name", "words", "message"),
    [
        ("a::b::c", {}, "cannot be the name"),
        ("", {}, "the op has no name"),
        ("rp_test::x__fwd", {}, "cannot be the name"),
        ("rp_test::w1", {"pure": True}, "unknown word `pure`"),
        ("rp_test::w2", {"autocast": "half"}, "`autocast` of `rp_test::w2` is `half`"),
        ("rp_test::w3", {"sharding": "rows"}, "`sharding` of `rp_test::w3` is `rows`"),
        ("rp_test::w4", {"dtypes": ("float31",)}, "unknown dtype `float31`"),
        ("rp_test::w5", {"schema": "(Tensor x -> Tensor"}, "cannot be read"),
        ("rp_test::w6", {"schema": "(Tensor x) -> int"}, "something else than tensors"),
        ("rp_test::w7", {"mutates": "y"}, "`mutates` names `y`"),
        ("rp_test::w8", {"random": True, "double_backward": True}, "cannot be random"),
        ("rp_test::w9", {"mutates": "x", "differentiable": True}, "has no gradient"),
    ],
)
def test_a_contract_that_means_nothing_is_refused(name, words, message):
    import torch
    from rp_examples import Double

    import oprep

    with pytest.raises(oprep.OprepError, match=message):
        oprep.register_autograd(name, Double, **words)
    assert not torch._C._jit_get_schemas_for_operator(name if "::" in name else "oprep::x")


@in_child()
def test_an_unknown_word_in_a_class_line_is_refused():
    import oprep

    with pytest.raises(oprep.OprepError, match="unknown word `pure` in the class line of `Wrong`"):

        class Wrong(oprep.Rp, pure=True):
            pass


@in_child()
def test_a_random_op_without_backward_is_refused():
    import torch

    import oprep

    class Noise(oprep.Rp, random=True):
        @staticmethod
        def forward(ctx, x):
            return x + torch.rand_like(x)

    with pytest.raises(oprep.OprepError, match="draws random numbers and has no backward"):
        oprep.register_autograd("rp_test::noise", Noise)


@in_child()
def test_a_thing_that_is_no_class_is_refused():
    import oprep

    for thing in (None, object, lambda x: x):
        with pytest.raises(oprep.OprepError, match="needs a class with `forward`"):
            oprep.register_autograd("rp_test::thing", thing)


@in_child()
def test_a_declared_dtype_holds_in_every_mode():
    import torch
    from rp_examples import Double

    import oprep

    op = oprep.register_autograd("rp_test::narrow", Double, dtypes=("float32", torch.float64))
    x = torch.ones(2, dtype=torch.float16)
    message = "`rp_test::narrow` does not take float16"
    for tensor in (x, x.clone().requires_grad_(), x.to("meta")):
        with pytest.raises(oprep.OprepError, match=message):
            op(tensor)
    with pytest.raises(oprep.OprepError, match=message):
        torch.vmap(op)(x)
    with pytest.raises(Exception, match=message):
        torch.compile(op, backend="aot_eager", fullgraph=True)(x)
    assert op(torch.ones(1)).item() == 2


@in_child()
def test_contiguous_inputs_are_given_where_declared():
    import torch

    import oprep

    seen = []

    class Look(oprep.Rp, layouts="contiguous"):
        @staticmethod
        def forward(ctx, x):
            seen.append(x.is_contiguous())
            return x + 1

        @staticmethod
        def backward(ctx, grad):
            return grad * 3

    op = oprep.register_autograd("rp_test::look", Look, definition="look")
    x = torch.ones(2, 3).t()
    y = x.clone().requires_grad_()
    op(x)
    assert torch.autograd.grad(op(y).sum(), y)[0].tolist() == [[3, 3]] * 3
    torch.vmap(op)(x)
    torch.compile(op, backend="aot_eager", fullgraph=True)(y).sum().backward()
    assert seen
    assert all(seen)


@in_child()
@pytest.mark.parametrize("result", ["x", "x.view(-1)", "x[0]", "(x + 1, x)", "None", "3"])
def test_a_forward_that_gives_what_its_schema_does_not_say_is_refused(result):
    import torch

    import oprep

    names: dict = {}
    exec(f"def forward(ctx, x): return {result}", names)
    bad = type(oprep.Rp)("Bad", (oprep.Rp,), {"forward": staticmethod(names["forward"])})
    op = oprep.register_autograd(f"rp_test::bad_{abs(hash(result))}", bad)
    alias = "returns an argument, or a view of one"
    told = alias if result in ("x", "x.view(-1)", "x[0]") else "something else than its schema"
    for x in (torch.ones(2), torch.ones(2, device="meta")):
        with pytest.raises(oprep.OprepError, match=told):
            op(x)
    if told == alias:
        with pytest.raises(oprep.OprepError, match=told):
            op(torch.ones(2, requires_grad=True))


@in_child()
def test_a_backward_with_another_number_of_gradients_is_refused():
    import torch

    import oprep

    class Short(oprep.Rp):
        @staticmethod
        def forward(ctx, x, y):
            return x * y

        @staticmethod
        def backward(ctx, grad):
            return grad

    op = oprep.register_autograd("rp_test::short", Short)
    x, y = torch.ones(2, requires_grad=True), torch.ones(2)
    message = "`backward` of `rp_test::short` gives 1 gradients for 2 arguments"
    with pytest.raises(oprep.OprepError, match=message):
        op(x, y).sum().backward()
    with pytest.raises(oprep.OprepError, match=message):
        torch.func.grad(lambda x: op(x, y).sum())(x.detach())


@in_child()
def test_a_saved_alias_or_repeated_tensor_is_carried_right():
    import torch

    import oprep

    class Saves(oprep.Rp):
        @staticmethod
        def forward(ctx, x):
            y = x * 2
            ctx.save_for_backward(x.view(-1), y, None, y[0], y)
            ctx.kept = y.flatten()
            return y

        @staticmethod
        def backward(ctx, grad):
            flat, y, nothing, row, again = ctx.saved_tensors
            assert nothing is None
            assert y is again or y.shape == again.shape
            return grad * flat.view(y.shape) * row + 0 * ctx.kept.view(y.shape)

    op = oprep.register_autograd("rp_test::saves", Saves)
    x = torch.arange(4.0).reshape(2, 2).requires_grad_()
    wanted = torch.autograd.grad(op(x).sum(), x)[0]
    assert wanted.tolist() == [[0, 2], [0, 6]]
    compiled = torch.compile(op, backend="aot_eager", fullgraph=True)
    assert torch.equal(torch.autograd.grad(compiled(x).sum(), x)[0], wanted)
    assert torch.equal(torch.func.grad(lambda x: op(x).sum())(x.detach()), wanted)
    found = torch.library.opcheck(op, (x,))
    assert set(found.values()) == {"SUCCESS"}


@in_child()
def test_undifferentiable_outputs_and_absent_gradients_are_the_class_s():
    import torch

    import oprep

    class Top(oprep.Rp):
        @staticmethod
        def forward(ctx, x) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
            values, index = x.max(-1)
            size = x.abs().sum()
            ctx.save_for_backward(index)
            ctx.shape = x.shape
            ctx.mark_non_differentiable(index, size)
            ctx.set_materialize_grads(False)
            return values, index, size

        @staticmethod
        def backward(ctx, grad, unused, also):
            assert unused is None
            assert also is None
            (index,) = ctx.saved_tensors
            made = torch.zeros(ctx.shape)
            return made.scatter(-1, index.unsqueeze(-1), grad.unsqueeze(-1))

    op = oprep.register_autograd("rp_test::top", Top)
    x = torch.tensor([[1.0, 3.0], [5.0, 2.0]], requires_grad=True)
    for call in (op, torch.compile(op, backend="aot_eager", fullgraph=True)):
        values, index, size = call(x)
        assert (index.tolist(), size.item()) == ([1, 0], 11)
        assert not size.requires_grad
        (grad,) = torch.autograd.grad(values.sum(), x)
        assert grad.tolist() == [[0, 1], [1, 0]]
    (grad,) = torch.func.jacrev(lambda x: op(x)[0].sum())(x.detach()).unsqueeze(0)
    assert grad.tolist() == [[0, 1], [1, 0]]


@in_child()
def test_tensors_inside_a_list_or_dict_on_ctx_are_carried_too():
    import torch

    import oprep

    class Holds(oprep.Rp):
        @staticmethod
        def forward(ctx, x, w):
            ctx.parts = [x, x.cos(), 3]
            ctx.named = {"w": w, "none": None}
            return x.sin() * w

        @staticmethod
        def backward(ctx, grad):
            x, cos, three = ctx.parts
            return grad * cos * ctx.named["w"] * three / 3, grad * x.sin()

    op = oprep.register_autograd("rp_test::holds", Holds)
    x, w = (torch.randn(3, requires_grad=True) for _ in range(2))
    wanted = torch.autograd.grad((x.sin() * w).sum(), (x, w))
    for call in (op, torch.compile(op, backend="aot_eager", fullgraph=True)):
        found = torch.autograd.grad(call(x, w).sum(), (x, w))
        assert all(torch.allclose(a, b) for a, b in zip(found, wanted, strict=True))
    flat = torch.vmap(torch.func.grad(op))(x.detach(), w.detach())
    assert torch.allclose(flat, wanted[0])


@in_child()
@pytest.mark.parametrize("needs", [False, True])
def test_a_change_that_was_not_declared_is_refused_at_the_first_call(needs):
    import torch

    import oprep

    class Sneaky(oprep.Rp):
        @staticmethod
        def forward(ctx, x, y):
            y.add_(1)
            return x + y

        @staticmethod
        def backward(ctx, grad):
            return grad, grad

    op = oprep.register_autograd("rp_test::sneaky", Sneaky)
    x = torch.ones(2, requires_grad=needs)
    with pytest.raises(oprep.OprepError, match="`forward` of `rp_test::sneaky` changes `y`"):
        op(x, torch.ones(2))


@in_child()
def test_the_first_call_of_a_composite_is_watched_again():
    import torch
    from rp_examples import Double

    import oprep

    class Sneaky(oprep.Rp):
        @staticmethod
        def forward(ctx, x):
            return x.add_(1) * 2

    op = oprep.register_autograd("rp_test::quiet", Double)
    assert op(torch.ones(1)).item() == 2
    with oprep.register_composite(op, Sneaky), pytest.raises(oprep.OprepError, match="changes `x`"):
        op(torch.ones(1))
