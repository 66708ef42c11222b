"""How close is close enough: one table by dtype, and the rules that make a tolerance of it.

The figures are those of `torch.testing.assert_close` (PyTorch documentation, "torch.testing");
what it does not list (integers, bool, strings, 8-bit floats) is compared exactly.
"""

from __future__ import annotations

from dataclasses import dataclass

from oprep.opsets.rule import Tolerance

BY_DTYPE: dict[str, Tolerance] = {
    "float16": Tolerance(1e-3, 1e-5),
    "bfloat16": Tolerance(1.6e-2, 1e-5),
    "float32": Tolerance(1.3e-6, 1e-5),
    "float64": Tolerance(1e-7, 1e-7),
    "complex64": Tolerance(1.3e-6, 1e-5),
    "complex128": Tolerance(1e-7, 1e-7),
}
EXACT = Tolerance(0.0, 0.0)

ULPS_AT_A_SITE = 4
"""Two right forms of GELU differ by rtol 1.4e-2 near -6, where 1 + erf cancels: what is lost is
a few units in the last place of the largest value that takes part, not of the result."""

NOISE_FLOORS = 4
"""How many times its own noise (runtime optimisations on against off) an output may move."""

NOISY = 1e-2
"""A noise floor above this part of the RMS says nothing about a candidate."""


@dataclass(frozen=True, slots=True)
class Scale:
    """What an output's tolerance depends on beside its dtype, in one input set.

    `rms` is that of its finite elements; `ulp` the unit in the last place of the largest absolute
    input or inner value of the site (0 for a whole model); `noise` the noise floor, if measured;
    `inputs` the RMS of what it is made from, which counts where the output is zero everywhere.
    """

    rms: float
    ulp: float = 0.0
    noise: float = 0.0
    inputs: float = 0.0

    @property
    def size(self) -> float:
        """Give what the table's atol is multiplied by."""
        return self.rms or self.inputs


def by_dtype(dtype: str) -> Tolerance:
    """Give the table's rtol and atol for a numpy dtype name; exact where it has none."""
    return BY_DTYPE.get(dtype, EXACT)


def default(dtype: str, scale: Scale) -> Tolerance:
    """Scale the table's atol by the RMS, never below the floors; exact dtypes stay exact."""
    table = by_dtype(dtype)
    if table == EXACT:
        return EXACT
    floors = (table.atol * scale.size, ULPS_AT_A_SITE * scale.ulp, NOISE_FLOORS * scale.noise)
    return Tolerance(table.rtol, max(floors))


def noisy(scale: Scale) -> bool:
    """Tell whether the original differs too much from itself to be a reference."""
    return scale.noise > NOISY * scale.size


def clamp(asked: Tolerance, max_rtol: float | None, max_atol: float | None) -> Tolerance:
    """Limit what a rule asks for to what the user allows any rule."""
    return Tolerance(
        asked.rtol if max_rtol is None else min(asked.rtol, max_rtol),
        asked.atol if max_atol is None else min(asked.atol, max_atol),
    )


def loosest(*tolerances: Tolerance) -> Tolerance:
    """Give the tolerance that accepts what any of them accepts."""
    return Tolerance(max(t.rtol for t in tolerances), max(t.atol for t in tolerances))
