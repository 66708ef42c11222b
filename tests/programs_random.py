"""Random small modules, a pool of rules that keep values, and what a rewrite must leave as it is.

A module is a list of steps over a growing list of values. A value has a kind, which stands for its
shape, so that a step fits without asking for a size that is free. Everything is float64: what
differs by more than rounding is wrong. Runs in the child.
"""

from __future__ import annotations

import copy
import io
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F

Step = tuple[str, int, int]
Value = tuple[torch.Tensor, str]

RULES: dict[str, str] = {
    "gelu": "replace = ['0.5 * x * (1 + erf(x / sqrt(2)))', 'gelu(x)']\nwith = 'drawn::gelu(x)'",
    "gelu by module": "replace = { module = 'torch.nn.GELU' }\nwith = 'drawn::gelu(input)'",
    "tanh gelu": "replace = \"gelu(x, approximate='tanh')\"\n"
    "with = '0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x ** 3)))'",
    "silu": "replace = 'silu(x)'\nwith = 'x * sigmoid(x)'",
    "written silu": "replace = 'x * sigmoid(x)'\nwith = 'silu(x)'",
    "relu": "replace = 'relu(x)'\nwith = 'where(x > 0, x, 0)'",
    "bare relu": "replace = 'aten::relu'\nwith = 'drawn::rectify'",
    "sigmoid": "replace = 'sigmoid(x)'\nwith = '1 / (1 + exp(-x))'",
    "tanh": "replace = 'tanh(x)'\nwith = 's = sigmoid(2 * x); 2 * s - 1'",
    "double": "replace = 'x * 2'\nwith = 'x + x'",
    "increment": "replace = 'x + 1'\nwith = 'drawn::increment(x)'",
    "named add": "replace = 'aten::add.Tensor(x, y)'\nwith = 'drawn::plus(y, x)'",
    "named mul": "replace = 'aten::mul.Tensor(x, y)'\nwith = 'drawn::times(x, y)'",
    "neg": "replace = 'neg(x)'\nwith = '0 - x'",
    "two negs": "replace = 'neg(neg(x))'\nwith = 'x'",
    "softmax": "replace = 'softmax(x, dim=d)'\n"
    "with = 'z = exp(x); z / sum(z, dim=d, keepdim=True)'",
    "topk": "replace = 'v, i = topk(x, k); return v, i'\nwith = 'drawn::top(x, k=k)'",
    "first of topk": "replace = 'v, i = topk(x, 2); return v'\n"
    "with = 'v, i = topk(x, 2); return v'",
    "alias": "replace = 'aten::alias(x)'\nwith = 'x'",
    "cat": "replace = 'cat(*xs, dim=d)'\nwith = 'drawn::join(*xs, dim=d)'",
    "dropout": "replace = 'aten::dropout(x, p=_, train=False)'\nwith = 'x'",
    "clone": "replace = 'clone(x)'\nwith = 'aten::alias(x)'",
    "copied slice": "replace = 'aten::slice.Tensor(x, dim=d, start=a, end=b)'\n"
    "with = 'clone(aten::slice.Tensor(x, dim=d, start=a, end=b))'",
    "copied transpose": "replace = 'aten::t(x)'\nwith = 'clone(aten::t(x))'",
    "permuted": "replace = 'aten::t(x)'\nwith = 'permute(x, [1, 0])'",
    "reshape": "replace = 'aten::reshape(x, shape=s)'\nwith = 'clone(aten::reshape(x, shape=s))'",
    "linear": "replace = 'linear(x, w)'\nwith = 'matmul(x, transpose(w, 0, 1))'",
    "linear by path": "replace = { module = 'first' }\nwith = 'drawn::affine(input, weight)'",
    "two roots": "replace = 'a = relu(x); b = sigmoid(y); return a, b'\nwith = 'drawn::pair(x, y)'",
}  # fmt: skip
"""Rules by name; each puts in what gives the very same values and gradients."""

OPS = """
[[op]]
name = "drawn::gelu"
body = "0.5 * x * (1 + erf(x / sqrt(2)))"
[[op]]
name = "drawn::rectify"
schema = "(Tensor self) -> Tensor"
body = "relu(self)"
[[op]]
name = "drawn::increment"
body = "x + 1"
[[op]]
name = "drawn::plus"
body = "x + y"
[[op]]
name = "drawn::times"
body = "x * y"
[[op]]
name = "drawn::top"
schema = "(Tensor x, int k=1) -> (Tensor, Tensor)"
body = "v, i = topk(x, k); return v, i"
[[op]]
name = "drawn::join"
schema = "(Tensor[] xs, int dim=0) -> Tensor"
body = "cat(*xs, dim=dim)"
[[op]]
name = "drawn::affine"
body = "matmul(x, transpose(w, 0, 1))"
[[op]]
name = "drawn::pair"
body = "return relu(x), sigmoid(y)"
"""

UNARY: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "gelu": F.gelu,
    "tanh gelu": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "relu": torch.relu,
    "method relu": lambda x: x.relu(),
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "double": lambda x: x * 2,
    "half": lambda x: 0.5 * x,
    "increment": lambda x: 1 + x,
    "neg": torch.neg,
    "neg neg": lambda x: torch.neg(torch.neg(x)),
    "clone": torch.clone,
    "same": lambda x: x.to(x.dtype),
    "contiguous": lambda x: x.contiguous(),
    "detach": lambda x: x.detach(),
    "dropout": lambda x: F.dropout(x, 0.5, training=False),
    "written silu": lambda x: torch.sigmoid(x) * x,
    "written gelu": lambda x: x * 0.5 * (1.0 + torch.erf(x * 0.7071067811865476)),
    "alias": lambda x: torch.ops.aten.alias(x),
    "reshaped": lambda x: x.reshape(x.shape),
}
IN_PLACE: dict[str, Callable[[torch.Tensor], Any]] = {
    "relu_": torch.relu_,
    "method relu_": lambda x: x.relu_(),
    "double_": lambda x: x.mul_(2),
    "increment_": lambda x: x.add_(1),
    "sigmoid_": lambda x: x.sigmoid_(),
    "neg_": lambda x: x.neg_(),
    "fill_": lambda x: x.fill_(0.5),
    "silu_": lambda x: F.silu(x, inplace=True),
    "out": lambda x: torch.sigmoid(x, out=x),
}
BINARY: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "add": lambda x, y: x + y,
    "mul": lambda x, y: x * y,
    "sub": lambda x, y: x - y,
    "scaled add": lambda x, y: torch.add(x, y, alpha=2),
    "where": lambda x, y: torch.where(x > y, x, y),
}
BOTH_IN_PLACE: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "add_": lambda x, y: x.add_(y),
    "mul_": lambda x, y: x.mul_(y),
    "copy_": lambda x, y: x.copy_(y),
    "add out": lambda x, y: torch.add(y, y, out=x),
}
VIEWS: dict[tuple[str, str], tuple[str, Callable[[torch.Tensor], torch.Tensor]]] = {
    ("rows", "t"): ("columns", lambda x: x.t()),
    ("columns", "t"): ("rows", lambda x: x.t()),
    ("rows", "slice"): ("pairs", lambda x: x[..., 1:3]),
    ("rows", "select"): ("column", lambda x: x[..., 0]),
    ("columns", "select"): ("column", lambda x: x[1]),
    ("rows", "flat"): ("flat", lambda x: x.reshape(-1)),
    ("flat", "rows"): ("rows", lambda x: x.view(-1, 4)),
    ("column", "expand"): ("rows", lambda x: x.unsqueeze(1).expand(-1, 4)),
    ("pairs", "cat"): ("rows", lambda x: torch.cat([x, x], -1)),
    ("rows", "half"): ("pairs", lambda x: x.chunk(2, -1)[1]),
    ("rows", "top"): ("pairs", lambda x: torch.topk(x, 2).values),
    ("rows", "top twice"): ("pairs", lambda x: (lambda t: t[0] + t[1])(torch.topk(x, 2))),
    ("rows", "softmax"): ("rows", lambda x: torch.softmax(x, -1)),
    ("rows", "softmax 1"): ("rows", lambda x: torch.softmax(x, 1)),
    ("rows", "row"): ("four", lambda x: x.sum(0)),
    ("four", "one"): ("one", lambda x: x.sum()),
    ("column", "one"): ("one", lambda x: x.sum()),
}  # fmt: skip
HELD = ("first", "second", "act", "count", "mean", "scale", "table")
STEPS = (
    *UNARY, *IN_PLACE, *BINARY, *BOTH_IN_PLACE,
    *dict.fromkeys(name for _, name in VIEWS), *HELD, "choose", "no grad", "assign", "dead",
)  # fmt: skip


class Drawn(torch.nn.Module):
    """A module that follows steps; `outputs` picks what it returns, `shape` how."""

    def __init__(self, steps: Sequence[Step], outputs: Sequence[int], shape: int) -> None:
        """Make parameters (two of them tied), buffers and a module without any."""
        super().__init__()
        torch.manual_seed(0)
        self.steps, self.outputs, self.shape = steps, outputs, shape
        self.first = torch.nn.Linear(4, 4, bias=False)
        self.second = torch.nn.Linear(4, 4, bias=False)
        self.second.weight = self.first.weight
        self.act = torch.nn.GELU()
        self.scale = torch.nn.Parameter(torch.randn(4))
        self.register_buffer("count", torch.zeros(()))
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("table", torch.randn(4), persistent=False)

    def forward(self, x: torch.Tensor, y: torch.Tensor, k: torch.Tensor) -> Any:
        """Follow the steps and return some of the values."""
        values: list[Value] = [(x, "rows"), (y, "rows"), (k.to(torch.float64), "rows")]
        self.follow(self.steps, values)
        given = [values[-1 - i % len(values)][0] for i in self.outputs]
        if self.shape == 0:
            return given[0]
        if self.shape == 1:
            return {"all": tuple(given), "twice": given[0], "three": 3, "none": None}
        return given, torch.ones(2), k * 2

    def follow(self, steps: Sequence[Step], values: list[Value]) -> None:
        """Do each step that fits; regions take the next three."""
        skipped = 0
        for position, (name, i, j) in enumerate(steps):
            if skipped:
                skipped -= 1
            elif name == "no grad":
                inner = [step for step in steps[position + 1 : position + 4] if step[0] != name]
                skipped = len(steps[position + 1 : position + 4])
                with torch.no_grad():
                    self.follow(inner, values)
            else:
                made = self.step(name, values[-1 - i % len(values)], values[-1 - j % len(values)])
                values += [made] if made is not None else []

    def step(self, name: str, one: Value, other: Value) -> Value | None:
        """Do one step; None where it gives nothing new or does not fit."""
        (x, kind), (y, second) = one, other
        if name in UNARY and (name != "dropout" or kind == "rows"):  # torch declares other strides
            return UNARY[name](x), kind
        if name in BINARY and (second in (kind, "one") or (kind, second) == ("rows", "four")):
            return BINARY[name](x, y), kind
        if (kind, name) in VIEWS:
            made, view = VIEWS[kind, name]
            return view(x), made
        if name in ("first", "second") and kind == "rows":
            return getattr(self, name)(x), kind
        if name == "act":
            return self.act(x), kind
        if name == "choose" and kind == "rows":
            return torch.cond(
                x.sum() > 0, lambda x: F.gelu(x) * 2, lambda x: -F.silu(x), (x,)
            ), kind
        if name in IN_PLACE:
            return self.changed(lambda: IN_PLACE[name](x), one)
        if name in BOTH_IN_PLACE and kind == second:
            return self.changed(lambda: BOTH_IN_PLACE[name](x, y), one)
        return self.with_state(name, x, kind)

    def changed(self, change: Callable[[], Any], one: Value) -> Value:
        """Change a value in place, the result is a value too."""
        return change(), one[1]

    def with_state(self, name: str, x: torch.Tensor, kind: str) -> Value | None:
        """Do a step that reads or changes what the module holds."""
        if name == "count":
            self.count.add_(1)
            return self.count * 2, "one"
        if name == "mean" and kind == "rows":
            self.mean.mul_(0.5).add_(x.detach().sum(0) * 0.5)
            return self.mean, "four"
        if name == "scale" and kind == "rows":
            return x * self.scale, kind
        if name == "table" and kind == "rows":
            return x * self.table + self.mean, kind
        if name == "assign" and kind == "rows":
            x[..., 1:3] = 0.25
        if name == "dead":
            _ = torch.relu(F.gelu(x))
        return None


def drawn(steps: Sequence[Step], outputs: Sequence[int], shape: int) -> Any:
    """Capture a drawn module with free rows; None where it cannot be run or captured."""
    module = Drawn(steps, outputs, shape).double()
    rows = {0: torch.export.Dim("rows", max=64)}
    try:
        return torch.export.export(module, inputs(3), dynamic_shapes=(rows, rows, rows))
    except Exception:  # in place on what does not allow it, or sizes that end up fixed
        return None


def inputs(rows: int) -> tuple[torch.Tensor, ...]:
    """Give inputs of so many rows."""
    made = torch.Generator().manual_seed(rows)
    x, y = (torch.randn(rows, 4, generator=made, dtype=torch.float64) for _ in range(2))
    return x, y, torch.randint(-3, 4, (rows, 4), generator=made)


def traces(exported: Any, rows: int, grads: Sequence[bool] = (True, False)) -> dict[str, Any]:
    """Run a program twice on state of its own; give all that can be seen; nothing if it fails."""
    for grad in grads:
        program = copy.deepcopy(exported)
        module = program.module()
        given = inputs(rows)
        for item in given[:2] if grad else ():
            item.requires_grad_()
        try:
            results = [module(*given), module(*given)]
        except RuntimeError:
            continue
        leaves = [torch.utils._pytree.tree_leaves(item) for item in results]
        seen: dict[str, Any] = {"grad": grad, "keys": sorted(program.state_dict)}
        for turn, items in enumerate(leaves):
            seen |= {f"output {i} of call {turn}": item for i, item in enumerate(items)}
        seen |= {f"input {i}": item for i, item in enumerate(given)}
        seen |= {f"state {name}": item for name, item in module.state_dict().items()}
        return {**seen, **_gradients(leaves[0], given, module)}
    return {}


def _gradients(outputs: list[Any], given: Any, module: Any) -> dict[str, Any]:
    total = torch.zeros((), dtype=torch.float64)
    for position, item in enumerate(outputs):
        if isinstance(item, torch.Tensor) and item.requires_grad:
            total = total + (item * (position + 1)).sum()
    if not total.requires_grad:
        return {"gradients": "none"}
    wanted = [("input 0", given[0]), ("input 1", given[1]), *module.named_parameters()]
    wanted = [(name, item) for name, item in wanted if item.requires_grad and item.is_leaf]
    try:
        found = torch.autograd.grad(total, [item for _, item in wanted], allow_unused=True)
    except RuntimeError:
        return {"gradients": "refused"}
    return {f"gradient of {name}": item for (name, _), item in zip(wanted, found, strict=True)}


def difference(one: dict[str, Any], other: dict[str, Any]) -> str:
    """Say what differs between two traces by more than rounding; empty where nothing does."""
    if "gradients" in one and one["gradients"] == "refused":
        other = {key: item for key, item in other.items() if not key.startswith("gradient")}
        one = {key: item for key, item in one.items() if key != "gradients"}
    for key in dict.fromkeys([*one, *other]):
        left, right = one.get(key), other.get(key)
        if not isinstance(left, torch.Tensor) or not isinstance(right, torch.Tensor):
            if type(left) is not type(right) or left != right:
                return f"{key}: {left} became {right}"
        elif left.dtype != right.dtype or left.shape != right.shape:
            return f"{key}: {left.dtype}{list(left.shape)} became {right.dtype}{list(right.shape)}"
        elif left.numel() and left.stride() != right.stride() and not key.startswith("gradient"):
            return f"{key}: strides {left.stride()} became {right.stride()}"
        elif not torch.allclose(left, right, rtol=1e-9, atol=1e-9, equal_nan=True):
            return f"{key}: {left.tolist()} became {right.tolist()}"
    return ""


def reloaded(program: Any) -> Any:
    """Save a program and load it again."""
    held = io.BytesIO()
    torch.export.save(program, held)
    held.seek(0)
    return torch.export.load(held)


def faults(exported: Any, rules: Sequence[str], texts: dict[str, str] = RULES) -> tuple[str, int]:
    """Apply rules to a program; say what differs afterwards, and count the matches.

    A conversion that is refused, because strides would be others, is no fault.
    """
    from programs_rewriting import conversion

    from oprep.opsets.errors import OprepError

    written = "".join(f"[[rule]]\nname = {name!r}\n{texts[name]}\n" for name in rules)
    made = conversion(exported, OPS + written)
    matches = made.plan().matches
    if not matches:
        return "", 0
    try:
        new = made.rewritten(matches)
    except OprepError as error:
        return ("" if "strides" in str(error) else str(error)), len(matches)
    for rows in (3, 0):
        told = _compared(exported, new, rows)
        if told:
            return told, len(matches)
    try:
        saved = reloaded(exported)
    except Exception:  # torch cannot save a region that gives nothing
        return "", len(matches)
    return _compared(saved, reloaded(new), 5), len(matches)


def _compared(old: Any, new: Any, rows: int) -> str:
    one = traces(old, rows)
    if not one:
        return ""
    other = traces(new, rows, [one["grad"]])
    return difference(one, other) if other else f"{rows} rows: the new program raises"
