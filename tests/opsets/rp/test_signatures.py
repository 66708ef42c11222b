"""Whatever an op takes and gives, its gradient is the class's in every way of calling it."""

from __future__ import annotations

import pytest
from torch_child import in_child

EXAMPLES = 200


def schema_of(kinds, outputs):
    words = {
        "tensor": "Tensor {}",
        "optional": "Tensor? {}=None",
        "list": "Tensor[] {}",
        "float": "float {}=2.0",
        "int": "SymInt {}=3",
        "keyword": "*, float {}=0.5",
    }
    order = sorted(kinds, key=["tensor", "list", "optional", "float", "int", "keyword"].index)
    written = ", ".join(words[kind].format(f"a{i}") for i, kind in enumerate(order))
    gives = "Tensor" if outputs == 1 else "(" + ", ".join(["Tensor"] * outputs) + ")"
    return order, f"({written}) -> {gives if outputs else 'Tensor[]'}"


def class_of(order, outputs, save, wrong):
    """Make a class that multiplies a sum of all tensors by all numbers, with its own gradient."""
    import torch

    import oprep

    count = outputs or 2

    def parts(args):
        tensors, factor = [], 1.0
        for value in args:
            if isinstance(value, torch.Tensor):
                tensors.append(value)
            elif isinstance(value, list | tuple):
                tensors += value
            elif value is not None:
                factor = factor * value
        return tensors, factor

    class Op(oprep.Rp):
        @staticmethod
        def forward(ctx, *args):
            tensors, factor = parts(args)
            total = sum(tensor.sin() for tensor in tensors) * factor
            ctx.factor, ctx.kinds = factor, [type(value) for value in args]
            ctx.sizes = [len(v) if isinstance(v, list | tuple) else 0 for v in args]
            if save == "inputs":
                ctx.save_for_backward(*tensors)
            else:
                ctx.save_for_backward(*(tensor.cos() for tensor in tensors))
            made = [total * (index + 1) for index in range(count)]
            return made[0] if outputs == 1 else tuple(made) if outputs else made

        @staticmethod
        def backward(ctx, *grads):
            total = sum(grad * (index + 1) for index, grad in enumerate(grads)) * ctx.factor
            found = iter(ctx.saved_tensors)

            def one():
                saved = next(found)
                return total * (saved.cos() if save == "inputs" else saved) * wrong

            result = []
            for kind, size in zip(ctx.kinds, ctx.sizes, strict=True):
                if issubclass(kind, torch.Tensor):
                    result.append(one())
                elif issubclass(kind, list | tuple):
                    result.append([one() for _ in range(size)])
                else:
                    result.append(None)
            return tuple(result)

    return Op, parts


def agree(data, wrong=1.0):
    """Draw a signature and a call; tell whether each way gives autograd's own gradient."""
    import torch
    from hypothesis import strategies as st
    from torch.fx.experimental.proxy_tensor import make_fx

    import oprep

    extra = st.lists(st.sampled_from(["tensor", "optional", "list", "float", "int", "keyword"]))
    kinds = ["tensor", *data.draw(extra.filter(lambda k: len(k) < 5 and k.count("keyword") < 2))]
    outputs = data.draw(st.sampled_from([0, 1, 1, 2, 3]))
    save = data.draw(st.sampled_from(["inputs", "extras"]))
    order, schema = schema_of(kinds, outputs)
    cls, parts = class_of(order, outputs, save, wrong)
    name = f"rp_drawn::op_{abs(hash((schema, save, wrong)))}"
    op = oprep.register_autograd(name, cls, schema=schema, definition=schema + save)
    args, keywords, factor = [], {}, 1.0
    for index, kind in enumerate(order):
        absent = kind in ("optional", "float", "int", "keyword") and data.draw(st.booleans())
        made = torch.randn(3, dtype=torch.float64, requires_grad=data.draw(st.booleans()))
        if kind == "keyword":
            keywords = {} if absent else {f"a{index}": 1.5}
            factor = keywords.get(f"a{index}", 0.5)
        elif absent:
            args.append({"optional": None, "float": 2.0, "int": 3}[kind])
        elif kind == "list":
            length = data.draw(st.integers(0, 2))
            args.append([torch.randn(3, dtype=torch.float64, requires_grad=True)] * length)
        else:
            args.append({"float": 0.25, "int": 2}.get(kind, made))
    tensors, positional = parts(args)
    total = sum(tensor.sin() for tensor in tensors) * factor * positional
    weights = sum(index + 1 for index in range(outputs or 2))
    leaves = list({id(t): t for t in tensors if t.requires_grad}.values())

    def run(*flat):
        swapped = dict(zip(map(id, leaves), flat, strict=True))
        put = [
            [swapped.get(id(p), p) for p in v] if isinstance(v, list) else swapped.get(id(v), v)
            for v in args
        ]
        result = op(*put, **keywords)
        return sum(result) if isinstance(result, list | tuple) else result

    if not torch.allclose(run(*leaves), weights * total):
        return False
    if not leaves:
        return True
    wanted = torch.autograd.grad((weights * total).sum(), leaves)

    def gradients(*flat):
        return torch.autograd.grad(run(*flat).sum(), flat)

    def functional(*flat):
        return torch.func.grad(lambda f: run(*f).sum())(flat)

    fresh = [leaf.detach().requires_grad_() for leaf in leaves]
    ways = [gradients(*leaves), functional(*(leaf.detach() for leaf in leaves))]
    ways.append(make_fx(gradients)(*fresh)(*fresh))
    return all(
        torch.allclose(one, other)
        for found in ways
        for one, other in zip(found, wanted, strict=True)
    )


@in_child(200)
@pytest.mark.parametrize("wrong", [1.0, 1.01])
def test_gradients_of_drawn_signatures_are_the_class_s_in_every_way(wrong):
    from hypothesis import HealthCheck, Phase, find, given, settings
    from hypothesis import strategies as st

    quiet = settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    if wrong == 1.0:

        @quiet
        @given(st.data())
        def holds(data):
            assert agree(data)

        holds()
    else:
        quick = settings(quiet, phases=[Phase.generate])
        planted = find(st.data(), lambda data: not agree(data, wrong), settings=quick)
        assert planted is not None
