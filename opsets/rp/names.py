"""`oprep.ops`: the registered ops by attribute, `ops.my_op` and `ops.acme.swish`.

Ops are plain attributes, so that torch.compile sees through them.
"""

from __future__ import annotations

from typing import Any

from oprep.opsets.rp.op import Op

HOME = "oprep"


class Namespace:
    """The ops of one namespace."""

    def __init__(self, path: str) -> None:
        """Begin empty; `path` is how messages call it."""
        self._path = path

    def __getattr__(self, name: str) -> Any:
        """Say which op is missing; those that are there are found before this is asked."""
        known = ", ".join(f"`{key}`" for key in sorted(vars(self)) if not key.startswith("_"))
        told = f"; it has {known}" if known else ""
        raise AttributeError(f"`{self._path}` has no op `{name}`{told}")

    def __dir__(self) -> list[str]:
        """List the ops and namespaces."""
        return sorted(key for key in vars(self) if not key.startswith("_"))

    def __repr__(self) -> str:
        """Give the path."""
        return self._path


class Ops(Namespace):
    """All registered ops: those of namespace `oprep`, and the other namespaces."""

    def add(self, op: Op) -> None:
        """Make an op an attribute; an op of namespace `oprep` wins over a namespace of its name."""
        space, short = op.name.split("::")
        if space == HOME:
            setattr(self, short, op.overload)
            return
        home: Namespace = self
        for part in space.split("."):
            inner = vars(home).get(part)
            if inner is None:
                inner = Namespace(f"{home._path}.{part}")
                setattr(home, part, inner)
            if not isinstance(inner, Namespace):
                return
            home = inner
        setattr(home, short, op.overload)


ops = Ops("oprep.ops")
