"""Which values of a graph share memory, what is written to, and where that forbids a replacement.

Schemas say which results may be views of which arguments and what is written to; what they keep
quiet about stands in tables. Where it is not known whether memory is shared, it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch.fx import Node

from oprep.converters.programs.layout import HIDDEN_WRITES, PASSES_THROUGH, named_arguments

if TYPE_CHECKING:
    from oprep.converters.programs.view import TorchView

DROPS = frozenset({"train", "training"})
"""Flags that switch an op's randomness off where they are false."""
RATES = frozenset({"p", "dropout", "dropout_p"})
"""Rates at which elements are dropped: at 0 nothing is drawn."""
NEUTRAL = frozenset({"aten::detach_", "aten::requires_grad_"})
"""Ops that are written as changes in place but change no element."""


@dataclass(frozen=True, slots=True)
class Write:
    """Node `node` changes the memory of `value`; `hidden` where it gives no result for it."""

    node: int
    value: str
    hidden: bool = False


class Aliases:
    """Sets of values of one region that may share memory, and all writes in order."""

    def __init__(self, view: TorchView) -> None:
        """Read a region from its first node to its last."""
        self.view = view
        self._parent: dict[str, str] = {}
        self.writes: list[Write] = []
        for node in range(len(view.fx)):
            if view.layouts[node] is not None:
                self._call(node)
            elif node in view.inner:
                self._nested(node)
        self.members: dict[str, list[str]] = {}
        for value in dict.fromkeys(view.values.values()):
            self.members.setdefault(self.root(value), []).append(value)

    def root(self, value: str) -> str:
        """Give the one value that stands for all that share memory with a value."""
        while (above := self._parent.get(value, value)) != value:
            value = above
        return value

    def written(self, value: str) -> bool:
        """Tell whether anything in the region changes the memory of a value."""
        return self.root(value) in self._written

    @property
    def _written(self) -> set[str]:
        return {self.root(write.value) for write in self.writes}

    def _join(self, one: str, other: str) -> None:
        one, other = self.root(one), self.root(other)
        if one != other:
            self._parent[other] = one

    def _call(self, node: int) -> None:
        view, layout = self.view, self.view.layouts[node]
        assert layout is not None
        given = named_arguments(layout, view.fx[node])
        outputs = view.region.outputs[node]
        for position, letters in enumerate(layout.results):
            # a result that is a list holds all outputs
            made = outputs if len(layout.results) == 1 else outputs[position : position + 1]
            for formal in layout.formals:
                if letters & formal.aliases and not _converts(view, node, layout.key):
                    for value in self._values(given.get(formal.name)):
                        for result in made:
                            self._join(value, result)
        base = layout.key.partition(".")[0]
        if base in PASSES_THROUGH and not view.random(node):
            for argument in given.values():
                for value in self._values(argument):
                    for result in outputs:
                        self._join(value, result)
        if layout.key in NEUTRAL:
            return
        for formal in layout.formals:
            if formal.writes:
                self.writes += [Write(node, v) for v in self._values(given.get(formal.name))]
        names, flag = HIDDEN_WRITES.get(base, ((), ""))
        if flag and view.attribute(node, flag) not in (False, None):
            for name in names:
                self.writes += [Write(node, v, True) for v in self._values(given.get(name))]

    def _nested(self, node: int) -> None:
        """Carry what a called graph shares and changes over to the values that it is given."""
        view = self.view
        outputs = view.region.outputs[node]
        for inner in view.inner[node]:
            given = view.operands(node, inner)
            aliases = inner.aliases
            by_root: dict[str, list[str]] = {}
            for placeholder, value in given.items():
                by_root.setdefault(aliases.root(placeholder), []).append(value)
            for write in aliases.writes:
                for value in by_root.get(aliases.root(write.value), ()):
                    self.writes.append(Write(node, value, True))
            for position, result in enumerate(inner.results_in_order()):
                if result and position < len(outputs):
                    for value in by_root.get(aliases.root(result), ()):
                        self._join(value, outputs[position])

    def _values(self, argument: Any) -> list[str]:
        if isinstance(argument, Node):
            return [self.view.values[argument]]
        if isinstance(argument, list | tuple):
            return [self.view.values[item] for item in argument if isinstance(item, Node)]
        return []

    def hazard(self, nodes: Sequence[int], roots: Sequence[str], reads: frozenset[str]) -> str:
        """Say which change in place forbids to replace `nodes` by one op at the last of them."""
        if not self.writes:
            return ""
        view, inside = self.view, set(nodes)
        first, last = nodes[0], nodes[-1]
        touched = {self.root(value) for value in reads}
        touched |= {self.root(value) for node in nodes for value in view.region.outputs[node]}
        for write in self.writes:
            if write.node in inside:
                reason = self._own(write, inside, roots)
                if reason:
                    return reason
            elif first < write.node < last and self.root(write.value) in touched:
                return (
                    f"`{view.names[write.node]}` changes `{write.value}` in place between the"
                    " nodes of the match"
                )
            else:
                reason = (
                    self._later(write, roots) if write.node > last else self._again(write, roots)
                )
                if reason:
                    return reason
        return ""

    def _again(self, write: Write, roots: Sequence[str]) -> str:
        """Judge a change before the match: the next call makes it again, and a result shows it."""
        for root in roots:
            memory = self.root(root)
            if self.root(write.value) == memory and self._held(memory) and self._goes_out([root]):
                if not self.view.replaced_by(write.value, root):
                    return f"`{root}` is a view of `{write.value}`, which each call changes"
        return ""

    def _own(self, write: Write, inside: set[int], roots: Sequence[str]) -> str:
        """Judge a change in place by a matched node: only who reads its result may see it."""
        view = self.view
        name = view.names[write.node]
        if write.hidden:
            return f"`{name}` also updates `{write.value}`, the replacement would not"
        own = set(view.region.outputs[write.node])
        for value in self.members[self.root(write.value)]:
            maker = view.region.producer.get(value, -1)
            if maker < 0:
                return f"`{name}` changes `{value}` in place, which the caller can see"
            if value in own or maker > write.node:
                continue
            if value in view.region.results:
                return f"`{name}` changes `{value}` in place, which is an output"
            if value == write.value or view.now_called(value, write.node) in own:
                continue
            late = [user for user in view.region.users.get(value, ()) if user > write.node]
            if late:
                return (
                    f"`{name}` changes `{write.value}` in place, and `{view.names[late[0]]}` reads"
                    f" `{value}`, which shares its memory"
                )
        return ""

    def _later(self, write: Write, roots: Sequence[str]) -> str:
        """Judge a change after the match: the new result shares no memory with what is old."""
        view = self.view
        for root in roots:
            if self.root(write.value) != self.root(root):
                continue
            made = view.region.producer[root]
            for value in self.members[self.root(root)]:
                maker = view.region.producer.get(value, -1)
                if maker < made and value != root and not view.replaced_by(value, root):
                    return (
                        f"`{root}` is a view of `{value}`, and `{view.names[write.node]}` changes"
                        " it in place later"
                    )
        return ""

    def changed_later(self, roots: Sequence[str], reads: Iterable[str], node: int) -> str:
        """Name the node that changes what `roots` would share with `reads` from `node` on.

        What the caller or the program holds is changed by the next call, too: an earlier change
        counts where the result goes out.
        """
        wanted = {self.root(value) for value in (*roots, *reads)}
        lasting = {self.root(value) for value in reads} if self._goes_out(roots) else set()
        for write in self.writes:
            root = self.root(write.value)
            if root in wanted and (write.node > node or (root in lasting and self._held(root))):
                return self.view.names[write.node]
        return ""

    def _held(self, root: str) -> bool:
        """Tell whether memory is there before and after a call: an input, buffer or parameter."""
        return any(value not in self.view.region.producer for value in self.members[root])

    def _goes_out(self, values: Iterable[str]) -> bool:
        """Tell whether one of the values, or a view of it, is a result of the graph."""
        results = self.view.region.results
        return any(
            value in results for name in values for value in self.members.get(self.root(name), ())
        )


def _converts(view: TorchView, node: int, key: str) -> bool:
    """Tell whether a `to` makes a copy because it changes the dtype."""
    if not key.startswith("aten::to"):
        return False
    before = view.dtypes(view.region.inputs[node][0])
    after = view.dtypes(view.region.outputs[node][0])
    return before != after
