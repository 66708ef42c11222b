"""How often a custom op is called in a program, and stands in the ONNX model made of it."""

from __future__ import annotations

from dataclasses import dataclass

from oprep.converters.report import CheckResult, Verdict

CHECK = "ops_kept"
MERGED = ": the exporter merges equal calls, and writes the condition of a loop twice"


@dataclass(frozen=True, slots=True)
class Counted:
    """One op: calls in the program, nodes that the model must have for them, nodes that it has."""

    op: str
    program: int
    expected: int
    model: int

    @property
    def result(self) -> CheckResult:
        """Give the finding: every call must have its node."""
        good = self.expected == self.model
        detail = f"{self.program} calls in the program, {self.model} nodes in the model"
        if good and self.program != self.model:
            detail += MERGED
        return CheckResult(CHECK, self.op, Verdict.PASS if good else Verdict.FAIL, detail=detail)
