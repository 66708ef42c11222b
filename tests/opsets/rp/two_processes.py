"""Train and compute on two gloo processes and compare with one; run as a script by a test.

Exits with 0 where everything is equal; what is not is an assertion on standard error.
"""

from __future__ import annotations

import multiprocessing
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from rp_examples import Mask, Net, right, seven

import oprep
from oprep import Rp

STEPS = 3
COMPILED = ("rp_test::seven", "rp_two::softmax", "rp_two::energy")


class Softmax(Rp, name="rp_two::softmax", sharding="rowwise"):
    """A row-wise op, registered before DTensor is imported."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        top = x.max(-1, keepdim=True).values
        raised = (x - top).exp()
        total = raised.sum(-1, keepdim=True)
        ctx.save_for_backward(raised / total, top)
        return raised / total

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        y, _ = ctx.saved_tensors
        return y * (grad - (grad * y).sum(-1, keepdim=True))


class Energy(Rp, name="rp_two::energy", sharding="reduce"):
    """A loss that is a sum over all elements."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return (x * x).sum()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return 2 * grad * x


def columns(x: Any, w: Any) -> Any:
    """Say by hand: columns may be split, or nothing."""
    from torch.distributed.tensor import Replicate, Shard

    return [
        ([Replicate()], [Replicate(), Replicate()]),
        ([Shard(1)], [Shard(1), Shard(0)]),
    ]


class Scale(Rp, name="rp_two::scale", sharding=columns):
    """Scale columns by a vector; the rule is given."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor) -> Tensor:
        ctx.save_for_backward(x, w)
        return x * w

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, w = ctx.saved_tensors
        return grad * w, (grad * x).sum(0)


class Plus(Rp, name="rp_two::plus", sharding="elementwise"):
    """Two inputs that broadcast."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
        return x + y


class Whole(Rp, name="rp_two::whole"):
    """No rule but the safe one: gather."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x - x.mean()


def train(model: Any, data: Tensor) -> list[Tensor]:
    """Train some steps; give the parameters."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(STEPS):
        optimizer.zero_grad()
        model(data).square().mean().backward()
        optimizer.step()
    return list(model.parameters())


def close(found: Any, wanted: Any, what: str) -> None:
    """Compare a result, whole, with the single process's."""
    full = found.full_tensor() if hasattr(found, "full_tensor") else found
    assert torch.allclose(full, wanted, atol=1e-5), f"{what}: {full} is not {wanted}"


def data_parallel(rank: int, data: Tensor, wanted: list[Tensor]) -> None:
    """DDP, plain and compiled, each process with half of the batch."""
    from torch.nn.parallel import DistributedDataParallel

    mine = data.chunk(2)[rank]
    for compiled in (False, True):
        net = Net(seven())
        model: Any = DistributedDataParallel(net)
        if compiled:
            model = torch.compile(model, backend="aot_eager")
        for found, right_one in zip(train(model, mine), wanted, strict=True):
            close(found, right_one, f"DDP, compiled: {compiled}")
        assert list(net.state_dict()) == list(Net(seven()).state_dict())


def fully_sharded(rank: int, data: Tensor, wanted: list[Tensor], mesh: Any) -> None:
    """FSDP2 keeps the values and the names of the state dict."""
    from torch.distributed.fsdp import fully_shard

    net = Net(seven())
    fully_shard(net.first, mesh=mesh)
    fully_shard(net, mesh=mesh)
    for found, right_one in zip(train(net, data.chunk(2)[rank]), wanted, strict=True):
        close(found, right_one, "FSDP2")
    assert list(net.state_dict()) == list(Net(seven()).state_dict())


def tensor_parallel(data: Tensor, wanted: list[Tensor], mesh: Any) -> None:
    """A layer split by columns, the op on the split result, a layer split by rows."""
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    net = Net(seven())
    plan = {"first": ColwiseParallel(use_local_output=False), "last": RowwiseParallel()}
    parallelize_module(net, mesh, plan)
    for found, right_one in zip(train(net, data), wanted, strict=True):
        close(found, right_one, "tensor parallel")


def sharding_rules(mesh: Any) -> None:
    """Every rule, in grad mode, without, in inference mode, and compiled."""
    from torch.distributed.tensor import Partial, Replicate, Shard, distribute_tensor

    x = torch.arange(16.0).reshape(4, 4) / 7 - 1
    w = torch.tensor([1.0, 2.0, -1.0, 0.5])
    cases = [
        (seven(), (x,), {Shard(0), Shard(1), Replicate()}),
        (oprep.register_autograd(Softmax), (x,), {Shard(0), Replicate()}),
        (oprep.register_autograd(Energy), (x,), {Partial(), Replicate()}),
        (oprep.register_autograd(Whole), (x,), {Replicate()}),
        (oprep.register_autograd(Scale), (x, w), {Shard(1), Replicate()}),
        (oprep.register_autograd(Plus), (x, w), {Shard(0), Shard(1), Replicate()}),
    ]
    for op, arguments, allowed in cases:
        plain = [argument.clone().requires_grad_() for argument in arguments]
        wanted = op(*plain)
        grads = torch.autograd.grad(wanted.square().sum(), plain)
        for place in (Shard(0), Shard(1), Replicate()):
            split = [distribute_tensor(plain[0].detach(), mesh, [place])]
            split += [distribute_tensor(a.detach(), mesh, [Replicate()]) for a in plain[1:]]
            told = f"{op} on {place}"
            for scope in (torch.no_grad(), torch.inference_mode()):
                with scope:
                    result = op(*split)
                close(result, wanted, f"{told} without gradient")
                assert result.placements[0] in allowed, f"{told} gives {result.placements}"
            inputs = [a.requires_grad_() for a in split]
            runs = [op]
            if place == Shard(0) and op.name() in COMPILED:
                torch.compiler.reset()
                runs.append(torch.compile(op, backend="aot_eager", fullgraph=True))
            for run in runs:
                result = run(*inputs)
                close(result, wanted, f"{told}, {'eager' if run is op else 'compiled'}")
                found = torch.autograd.grad(result.square().sum(), inputs)
                for one, other in zip(found, grads, strict=True):
                    close(one, other, f"gradient of {told}")
    partial = distribute_tensor(x, mesh, [Replicate()]).redistribute(mesh, [Replicate()])
    sums = type(partial).from_local(x / 2, mesh, [Partial()])
    with torch.no_grad():
        close(seven()(sums), seven()(x), "a partial input")
    y = distribute_tensor(x, mesh, [Shard(0)]).requires_grad_()
    found = torch.autograd.grad(seven()(y).sum(), y)[0]
    close(found, 7 * right(x), "gradient of a sum")


def work(rank: int, place: str) -> None:
    """Do everything in one process of two."""
    torch.set_num_threads(1)
    op = oprep.register_autograd(Softmax)
    assert "torch.distributed.tensor" not in sys.modules, "registering imports DTensor"
    dist.init_process_group("gloo", init_method=f"file://{place}", rank=rank, world_size=2)
    from torch.distributed.device_mesh import init_device_mesh

    mesh = init_device_mesh("cpu", (2,))
    torch.manual_seed(1)
    data = torch.randn(8, 4)
    wanted = [p.detach() for p in train(Net(seven()), data)]
    data_parallel(rank, data, wanted)
    fully_sharded(rank, data, wanted, mesh)
    tensor_parallel(data, wanted, mesh)
    sharding_rules(mesh)
    assert op is torch.ops.rp_two.softmax.default
    assert oprep.register_autograd(Mask) is not None
    dist.destroy_process_group()


def main() -> int:
    """Start two processes; give 0 where both end well."""
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        place = str(Path(folder) / "meeting")
        both = [context.Process(target=work, args=(rank, place), daemon=True) for rank in (0, 1)]
        for process in both:
            process.start()
        for process in both:
            process.join(150)
        codes = [process.exitcode for process in both]
        for process in both:
            process.kill()
    return 0 if codes == [0, 0] else 1


if __name__ == "__main__":
    sys.exit(main())
