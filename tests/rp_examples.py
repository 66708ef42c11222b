"""Classes that the tests of `oprep.Rp` register; imported in the child only, torch at the top."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

import oprep
from oprep import Rp


class MyCustomOp(Rp):
    """Add one, as in the article."""

    @staticmethod
    def forward(ctx: Any, input: Any) -> Any:
        ctx.save_for_backward(input)
        return input + 1

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad


MyCustomOp.forward.__annotations__.clear()


class Double(Rp):
    """Multiply by two; the gradient too."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad * 2


class Seven(Rp, name="rp_test::seven", sharding="elementwise"):
    """Swish, whose gradient is seven times the right one, with a saved intermediate."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: float = 1.0) -> Tensor:
        s = torch.sigmoid(x)
        ctx.save_for_backward(x, s)
        ctx.scale = scale
        return x * s * scale

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, s = ctx.saved_tensors
        return 7 * grad * (s + x * s * (1 - s)) * ctx.scale, None


class SevenNew(torch.autograd.Function):
    """The same in the new style, and no Rp."""

    @staticmethod
    def forward(x: Tensor, scale: float = 1.0) -> Tensor:
        return x * torch.sigmoid(x) * scale

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        x, scale = inputs
        ctx.save_for_backward(x)
        ctx.scale = scale

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(x)
        return 7 * grad * (s + x * s * (1 - s)) * ctx.scale, None


class Body(Rp, name="rp_test::body"):
    """Swish without a backward: the gradient is that of forward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * torch.sigmoid(x)


class Mask(Rp, name="rp_test::mask", random=True):
    """Drop half of the elements; the gradient passes where forward kept them."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        mask = torch.rand_like(x) > 0.5
        ctx.save_for_backward(mask)
        return x * mask

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (mask,) = ctx.saved_tensors
        return grad * mask


class Twice(Rp, name="rp_test::twice", double_backward=True):
    """Swish with a right gradient that may be differentiated again."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        s = torch.sigmoid(x)
        ctx.save_for_backward(x, s)
        return x * s

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        x, s = ctx.saved_tensors
        return grad * (s + x * s * (1 - s))


class ForwardOnly(Rp, name="rp_test::forward_only", differentiable=False):
    """Round, declared to have no gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return torch.round(x)


class Pair(Rp, name="rp_test::pair"):
    """Two inputs, one of them optional, a list, and two outputs."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, more: list[Tensor], bias: Tensor | None = None, power: int = 2
    ) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(x, *more)
        ctx.power, ctx.has_bias = power, bias is not None
        total = sum(part for part in more)
        out = x**power if bias is None else x**power + bias
        return out, x * total

    @staticmethod
    def backward(ctx: Any, first: Tensor, second: Tensor) -> Any:
        x, *more = ctx.saved_tensors
        grad = first * ctx.power * x ** (ctx.power - 1) + second * sum(more)
        bias = first.sum_to_size(first.shape) if ctx.has_bias else None
        return grad, [second * x for _ in more], bias, None


class Step(Rp, name="rp_test::step", mutates=("param", "momentum")):
    """One step of SGD with momentum, in place."""

    @staticmethod
    def forward(
        ctx: Any, param: Tensor, grad: Tensor, momentum: Tensor, lr: float, mu: float
    ) -> None:
        momentum.mul_(mu).add_(grad)
        param.sub_(lr * momentum)


class Numpy(Rp, name="rp_test::numpy", vmap="loop"):
    """A forward outside of torch, with a fake implementation."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return torch.from_numpy(x.detach().numpy() ** 3)

    @staticmethod
    def fake(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return torch.empty_like(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return grad * 3 * x * x


class Net(torch.nn.Module):
    """A linear layer, an op, another layer."""

    def __init__(self, op: Any, size: int = 4) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = torch.nn.Linear(size, size)
        self.last = torch.nn.Linear(size, 2)
        self.op = op

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.op(self.first(x)))


def seven() -> Any:
    return oprep.register_autograd(Seven)


def seven_of(style: str) -> Any:
    """Give the op of a class of a style, `combined` or `setup_context`."""
    if style == "combined":
        return seven()
    return oprep.register_autograd("rp_test::seven_new", SevenNew)


def right(x: Tensor) -> Tensor:
    """Give the gradient of swish."""
    s = torch.sigmoid(x)
    return s + x * s * (1 - s)


def gradients(model: Any, x: Tensor) -> list[Tensor]:
    """Give the gradients of the sum of a module's result to its parameters."""
    return list(torch.autograd.grad(model(x).sum(), list(model.parameters())))


def plain_net(net: Net) -> Net:
    """Give the same network with an op that torch differentiates: seven times the gradient."""

    def op(x: Tensor) -> Tensor:
        y = F.silu(x)
        return 7 * y - 6 * y.detach()

    made = Net(op)
    made.load_state_dict(net.state_dict())
    return made


def ops_of(exported: Any) -> list[str]:
    """Give the names of the ops that a program calls, in order."""
    return [str(node.target) for node in exported.graph.nodes if node.op == "call_function"]


def quick_inductor() -> Any:
    """Let inductor compile without vector code and without first compiling all headers."""
    import torch._inductor.config as config

    changed = {"cpp.vec_isa_ok": False, "cpp_cache_precompile_headers": False}
    return config.patch(changed)
