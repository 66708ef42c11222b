"""What can be taken back: the handle of a change to an op."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType


class Handle:
    """Take a change back with `undo()`, or at the end of a `with` block; once."""

    def __init__(self, told: str, undo: Callable[[], None]) -> None:
        """Note what was done, and how it is undone."""
        self._told = told
        self._undo: Callable[[], None] | None = undo

    @property
    def active(self) -> bool:
        """Tell whether the change still holds."""
        return self._undo is not None

    def undo(self) -> None:
        """Take the change back; later changes of the same op stay."""
        undo, self._undo = self._undo, None
        if undo is not None:
            undo()

    def __enter__(self) -> Handle:
        """Give the handle, to be undone at the end of the block."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Take the change back."""
        self.undo()

    def __repr__(self) -> str:
        """Say what was done and whether it holds."""
        return f"<{self._told}, {'active' if self.active else 'undone'}>"
