"""One op is one node, with its own gradient, in everything that torch makes graphs of."""

from __future__ import annotations

import warnings

import pytest
from torch_child import in_child

STYLES = ["combined", "setup_context"]


@in_child()
@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("strict", [False, True])
def test_export_decompose_save_and_load_keep_one_node_and_seven_times_the_gradient(style, strict):
    import io

    import torch
    from rp_examples import Net, gradients, ops_of, plain_net, seven_of

    op = seven_of(style)
    net = Net(op)
    x = torch.randn(3, 4)
    wanted = gradients(plain_net(net), torch.ones(2, 4))
    dims = ({0: torch.export.Dim("batch")},)
    exported = torch.export.export(net, (x,), dynamic_shapes=dims, strict=strict)
    file = io.BytesIO()
    torch.export.save(exported, file)
    file.seek(0)
    loaded = torch.export.load(file)
    programs = [exported, exported.run_decompositions(), exported.run_decompositions({}), loaded]
    for program in programs:
        assert ops_of(program).count(str(op)) == 1
        assert len(ops_of(program)) <= 5
        found = gradients(program.module(), torch.ones(2, 4))
        assert all(torch.allclose(a, b) for a, b in zip(found, wanted, strict=True))
    assert list(loaded.state_dict) == list(net.state_dict())


@in_child()
@pytest.mark.parametrize("style", STYLES)
def test_compile_keeps_one_node_forward_and_seven_times_the_gradient(style):
    import torch
    from rp_examples import Net, gradients, plain_net, seven_of
    from torch._dynamo.backends.common import aot_autograd

    op = seven_of(style)
    net = Net(op)
    wanted = gradients(plain_net(net), torch.ones(2, 4))
    graphs = []

    def keep(module, inputs):
        graphs.append([str(n.target) for n in module.graph.nodes if n.op == "call_function"])
        return module.forward

    compiled = torch.compile(net, fullgraph=True, backend=aot_autograd(fw_compiler=keep))
    found = gradients(compiled, torch.ones(2, 4))
    assert all(torch.allclose(a, b) for a, b in zip(found, wanted, strict=True))
    assert sum(name.startswith("rp_test.seven") for name in graphs[0]) == 1
    assert not any("sigmoid" in name for name in graphs[0])
    with torch.no_grad():
        assert torch.allclose(compiled(torch.ones(2, 4)), net(torch.ones(2, 4)))
    assert graphs[-1].count(str(op)) == 1


@in_child(240)
def test_inductor_s_caches_never_serve_the_gradient_of_another_definition():
    """They know an op by its name alone: without the tag the old gradient is served."""
    import torch
    from rp_examples import Double, quick_inductor, right, seven

    import oprep

    double = oprep.register_autograd("rp_test::double", Double)  # no C++ is compiled for an op

    class Once(oprep.Rp):
        @staticmethod
        def forward(ctx, x):
            return double(x)

        @staticmethod
        def backward(ctx, grad):
            return double(grad)

    class Other(Once):
        @staticmethod
        def backward(ctx, grad):
            return double(double(grad))

    op = oprep.register_autograd("rp_test::cached", Once)
    x = torch.randn(4, requires_grad=True)
    compiled = torch.compile(lambda x: op(x), fullgraph=True)

    def gradient():
        return torch.autograd.grad(compiled(x), x, torch.ones(4))[0]

    with quick_inductor():
        assert gradient().tolist() == [2] * 4
        with oprep.register_composite("rp_test::cached", Other):
            assert gradient().tolist() == [4] * 4
        assert gradient().tolist() == [2] * 4
        swish = torch.compile(seven(), fullgraph=True)
        assert torch.allclose(torch.autograd.grad(swish(x).sum(), x)[0], 7 * right(x), atol=1e-6)


@in_child(240)
def test_an_aot_inductor_package_calls_the_op():
    import tempfile
    from pathlib import Path

    import torch
    from rp_examples import ops_of, quick_inductor, seven

    op = seven()

    class Only(torch.nn.Module):
        def forward(self, x):
            return op(x, 2.0)

    x = torch.randn(3, 4)
    exported = torch.export.export(Only(), (x,), dynamic_shapes=({0: torch.export.Dim("n")},))
    assert ops_of(exported) == ["rp_test.seven.default"]
    quick = {"aot_inductor.compile_wrapper_opt_level": "O0"}
    with tempfile.TemporaryDirectory() as folder, torch.no_grad(), quick_inductor():
        path = torch._inductor.aoti_compile_and_package(
            exported, package_path=str(Path(folder) / "only.pt2"), inductor_configs=quick
        )
        run = torch._inductor.aoti_load_package(path)
        for rows in (3, 5):
            x = torch.randn(rows, 4)
            assert torch.equal(run(x), op(x, 2.0))


@in_child(240)
def test_onnx_export_gives_one_custom_node():
    import onnxscript
    import torch
    from onnx import TensorProto, defs
    from rp_examples import Net, seven

    op = seven()
    float_tensor = [f"tensor({kind})" for kind in ("float", "double")]
    assert TensorProto.FLOAT
    schema = defs.OpSchema(
        "Seven",
        "rp.test",
        1,
        inputs=[defs.OpSchema.FormalParameter("x", "T")],
        outputs=[defs.OpSchema.FormalParameter("y", "T")],
        type_constraints=[("T", float_tensor, "")],
        attributes=[defs.OpSchema.Attribute("scale", defs.OpSchema.AttrType.FLOAT, required=False)],
    )
    node = onnxscript.values.Op(onnxscript.values.Opset("rp.test", 1), "Seven", schema)

    def translated(x, scale=1.0):
        return node(x, scale=scale)

    program = torch.onnx.export(
        Net(op).eval(),
        (torch.randn(3, 4),),
        dynamo=True,
        verbose=False,
        custom_translation_table={op: translated},
    )
    names = [(item.domain, item.op_type) for item in program.model.graph]
    assert names.count(("rp.test", "Seven")) == 1
    assert not any(name in ("Sigmoid", "Mul") for _, name in names)


@in_child()
def test_jit_trace_keeps_one_node_and_seven_times_the_gradient():
    import torch
    from rp_examples import Net, gradients, plain_net, seven

    net = Net(seven())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        traced = torch.jit.trace(net, (torch.randn(3, 4),))
    kinds = [node.kind() for node in traced.inlined_graph.nodes()]
    assert kinds.count("rp_test::seven") == 1
    assert "aten::sigmoid" not in kinds
    found = gradients(traced, torch.ones(2, 4))
    wanted = gradients(plain_net(net), torch.ones(2, 4))
    assert all(torch.allclose(a, b) for a, b in zip(found, wanted, strict=True))


@in_child()
def test_torch_would_lose_the_backward_of_a_function_that_is_not_registered():
    """The reason for all this: should torch keep it one day, this test tells."""
    import torch
    from rp_examples import Net, Seven, gradients, plain_net

    net = Net(Seven.apply)
    exported = torch.export.export(net, (torch.randn(2, 4),))
    found = gradients(exported.module(), torch.ones(2, 4))
    wanted = gradients(plain_net(net), torch.ones(2, 4))
    assert not torch.allclose(found[0], wanted[0])


@in_child()
@pytest.mark.parametrize("way", ["eager", "program", "compiled", "loaded", "checkpoint", "both"])
def test_a_random_mask_is_the_same_forward_and_backward(way):
    import io

    import torch
    from rp_examples import Mask
    from torch.utils.checkpoint import checkpoint

    import oprep

    op = oprep.register_autograd(Mask)

    class Masked(torch.nn.Module):
        def forward(self, x):
            return op(x.exp()) * 3

    x = torch.randn(64, requires_grad=True)
    model = Masked()
    if way in ("program", "loaded"):
        exported = torch.export.export(model, (x.detach(),))
        file = io.BytesIO()
        torch.export.save(exported, file)
        file.seek(0)
        model = (exported if way == "program" else torch.export.load(file)).module()
        assert ops_named(exported, op) == 1
        assert ops_named(exported.run_decompositions(), op) == 1
    if way in ("checkpoint", "both"):
        inner = model

        def model(x):
            return checkpoint(inner, x, use_reentrant=False)

    if way in ("compiled", "both"):
        model = torch.compile(model, backend="aot_eager", fullgraph=True)
    y = model(x)
    (grad,) = torch.autograd.grad(y.sum(), x)
    assert torch.allclose(grad, y)
    assert 10 < (y != 0).sum() < 54
    assert not torch.equal(model(x) != 0, y != 0)


def ops_named(exported, op):
    return sum(node.target is op for node in exported.graph.nodes)


@in_child()
def test_a_forward_outside_of_torch_is_captured_through_its_fake():
    import torch
    from rp_examples import Numpy

    import oprep

    op = oprep.register_autograd(Numpy)
    x = torch.randn(5, requires_grad=True)
    compiled = torch.compile(lambda x: op(x) * 2, backend="aot_eager", fullgraph=True)
    assert torch.allclose(compiled(x), 2 * x**3)
    (grad,) = torch.autograd.grad(compiled(x).sum(), x)
    assert torch.allclose(grad, 6 * x * x)
    assert torch.allclose(torch.vmap(op)(x.detach().reshape(5, 1)), x.detach().reshape(5, 1) ** 3)


@in_child()
def test_torch_s_own_checks_of_custom_ops_pass():
    import torch
    from rp_examples import Body, Pair, Step, Twice, seven

    import oprep

    x = torch.randn(3, requires_grad=True)
    calls = [
        (seven(), (x, 2.0)),
        (oprep.register_autograd(Body), (x,)),
        (oprep.register_autograd(Twice), (x,)),
        (oprep.register_autograd(Pair), (x, [x.detach(), x])),
        (oprep.register_autograd(Step), (torch.ones(2), torch.ones(2), torch.zeros(2), 0.1, 0.9)),
    ]
    for op, arguments in calls:
        found = torch.library.opcheck(op, arguments)
        assert set(found.values()) == {"SUCCESS"}
