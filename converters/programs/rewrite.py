"""Carry a plan out on a copy of a captured program; nothing unmatched is touched.

New nodes take the place and the name of what they replace, so that the signature stays as it is.
Their values are found by running the new ops alone; as they must equal what was declared,
everything behind them stands.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.fx import Graph, Node
from torch.fx.experimental.symbolic_shapes import _ShapeEnvGuardError

from oprep.converters.match import Match
from oprep.converters.programs.builders import FxBuilder
from oprep.converters.programs.casting import Casts, casts_of
from oprep.converters.programs.copying import Copied, rename
from oprep.converters.programs.declared import difference
from oprep.converters.programs.layout import key_of, layout_of, named_arguments
from oprep.converters.programs.placement import place
from oprep.converters.programs.replacement import Replacement
from oprep.converters.programs.view import TorchView
from oprep.opsets.errors import ExitCode, OprepError

if TYPE_CHECKING:
    from oprep.converters.programs.graph import TorchGraph

OF_ITS_OWN = frozenset({
    "val", "tensor_meta", "torch_fn", "unbacked_bindings", "example_value", "eager_input_vals",
})  # fmt: skip
"""What a node's metadata says of the node itself; the rest says where it comes from, and stays."""


def rewrite(
    graph: TorchGraph, matches: Sequence[Match], replacements: Mapping[int, Replacement]
) -> ExportedProgram:
    """Give a changed copy of the program; the original and its weights are not touched.

    `replacements` has the right side of each rule by the `order` of its matches.

    Raise OprepError (exit VERIFICATION) where an op's fake implementation disagrees with what the
    graph declares at a site, or narrows the sizes that the program takes.
    """
    exported = graph.exported
    copied = Copied(exported)
    by_path: dict[tuple[Any, ...], list[Match]] = {}
    for match in matches:
        by_path.setdefault(match.view.region.path, []).append(match)
    kept = _named_by_calls(exported)
    casts = casts_of(exported.graph_module)
    done: set[int] = set()
    for path, own in by_path.items():
        if id(copied.graphs[path]) in done:
            continue  # one graph under two names
        done.add(id(copied.graphs[path]))
        view = own[0].view
        assert isinstance(view, TorchView)
        region = _Region(
            copied.graphs[path], view, copied, kept if not path else frozenset(),
            casts[id(view.graph_module.graph)],
        )  # fmt: skip
        seen: set[Any] = set()
        for match in sorted(own, key=lambda item: place(item)[0]):
            if match.roots not in seen:  # a graph that is called twice is one graph
                seen.add(match.roots)
                region.replace(match, replacements[match.order])
        region.clean()
    return copied.finish()


def _named_by_calls(exported: ExportedProgram) -> frozenset[str]:
    """Give the values that the signatures of preserved modules name."""
    signatures = [entry.signature for entry in exported.module_call_graph if entry.signature]
    return frozenset(
        name
        for signature in signatures
        for argument in (*signature.inputs, *signature.outputs)
        if isinstance(name := getattr(argument, "name", None), str)
    )


@dataclass
class _Region:
    """One graph while it is rewritten; `current` has the node behind each name of the original."""

    graph: Graph
    view: Any
    copied: Copied
    kept: frozenset[str]
    casts: Casts
    current: dict[str, Node] = field(init=False)
    order: dict[Node, float] = field(init=False)
    renamed: list[tuple[Node, str]] = field(default_factory=list)
    dead: list[Node] = field(default_factory=list)

    def __post_init__(self) -> None:
        nodes = list(self.graph.nodes)
        self.current = {node.name: node for node in nodes}
        self.order = {node: float(i) for i, node in enumerate(nodes)}

    def node(self, value: Any) -> Node:
        """Give the node of a value; a result that nobody picks is picked now."""
        found = self.current.get(str(value))
        if found is not None:
            return found
        maker = self.current[value.node.name]
        with self.graph.inserting_after(maker):
            found = self.graph.call_function(operator.getitem, (maker, value.index))
        found.meta = {**maker.meta, "val": maker.meta["val"][value.index]}
        self.order[found] = self.order[maker]
        self.current[str(value)] = found
        return found

    def replace(self, match: Match, replacement: Replacement) -> None:
        """Put a replacement where a match stands."""
        before, moved = place(match)
        fx = self.view.fx
        old = {value: self.node(value) for value in match.roots}
        anchor = self.current[fx[before].name]
        origin = old[match.roots[0]].meta
        builder = FxBuilder(
            self.graph,
            anchor,
            self.copied.mode,
            {key: item for key, item in origin.items() if key not in OF_ITS_OWN},
            _Failed(match, replacement),
            casts=self.casts,
        )
        results = replacement.emit(match, builder, self.node)
        for node in builder.made:
            self.order[node] = self.order[anchor] - 0.5
        self._behind(moved, anchor)
        for value, new in zip(match.roots, results, strict=True):
            self._stand_in(match, replacement, value, old[value], new)
        for node in builder.made:
            if not node.users and node not in results:
                self.graph.erase_node(node)
        self.dead += [self.current[fx[i].name] for i in reversed(match.nodes)]
        for value, new in zip(match.roots, results, strict=True):
            self.current[str(value)] = new

    def _behind(self, moved: Sequence[int], anchor: Node) -> None:
        """Move nodes that read a root behind the new nodes, in their order."""
        for i in moved:
            node = self.current[self.view.fx[i].name]
            for item in (node, *[user for user in node.users if _picks(user)]):
                anchor.prepend(item)
                self.order[item] = self.order[anchor] - 0.25

    def _stand_in(
        self, match: Match, replacement: Replacement, value: Any, old: Node, new: Node
    ) -> None:
        """Let everything that read an old result read the new one."""
        differs = difference(old.meta.get("val"), new.meta.get("val"))
        if differs is not None:
            raise _disagrees(match, replacement, new, *differs)
        for key in ("val", "unbacked_bindings"):
            if key in old.meta:
                new.meta[key] = old.meta[key]
        old.replace_all_uses_with(new, propagate_meta=False)
        inside = {self.current[self.view.fx[i].name] for i in match.nodes}

        def reads_later(user: Node) -> bool:
            return self.order[user] > self.order[old] and user not in inside

        for target in self._changed_in_place(value):
            target.replace_all_uses_with(new, reads_later)
        self.renamed.append((new, old.name))

    def _changed_in_place(self, value: Any) -> list[Node]:
        """Give what the old op wrote to: those who read it later read the new result instead."""
        fx = value.node
        if not isinstance(fx.target, OpOverload) or not fx.target._schema.is_mutable:
            return []
        layout = layout_of(fx.target)
        given = named_arguments(layout, fx)
        written = [given.get(item.name) for item in layout.formals if item.writes]
        target = written[value.index] if value.index < len(written) else None
        return [self.current[target.name]] if isinstance(target, Node) else []

    def clean(self) -> None:
        """Erase what only the matches needed, and give new nodes the names of what they replace."""
        kept = {id(node) for node, _ in self.renamed}
        work = sorted(set(self.dead), key=lambda node: self.order[node], reverse=True)
        for node in work:
            if id(node) in kept or node._erased:
                continue
            for user in [item for item in node.users if _picks(item) and not item.users]:
                if user.name not in self.kept:
                    self.graph.erase_node(user)
            if not node.users and node.name not in self.kept:
                self.graph.erase_node(node)
        for node, name in self.renamed:
            if not node._erased:
                rename(node, name)


def _picks(node: Node) -> bool:
    return node.target is operator.getitem


@dataclass(frozen=True)
class _Failed:
    """Turns the failure of an op's fake implementation into a message that names the site."""

    match: Match
    replacement: Replacement

    def __call__(self, overload: OpOverload, error: Exception) -> Exception:
        op, where = key_of(overload), f"{self.match.site}, rule `{self.replacement.rule.name}`"
        reason = " ".join(str(error).split())[:200]
        if isinstance(error, _ShapeEnvGuardError):
            return OprepError(
                f"`{op}` would narrow the sizes that the program takes",
                where,
                ("its fake implementation decides by a size that is free", reason),
                "write the op so that it does the same for every size",
                ExitCode.VERIFICATION,
            )
        return OprepError(
            f"`{op}` does not take what the site gives it",
            where,
            (f"its fake implementation raised {type(error).__name__}: {reason}",),
            "correct the op, or the call in `with`",
            ExitCode.VERIFICATION,
        )


def _disagrees(
    match: Match, replacement: Replacement, new: Node, declared: str, found: str
) -> OprepError:
    op = key_of(new.target) if isinstance(new.target, OpOverload) else replacement.label
    return OprepError(
        f"`{op}` does not give what the site declares",
        f"{match.site}, rule `{replacement.rule.name}`",
        (f"the program declares {declared}, the op's fake implementation gives {found}",),
        "correct the op, or restrict the rule with `when`",
        ExitCode.VERIFICATION,
    )
