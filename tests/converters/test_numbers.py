"""Comparing arrays: every figure against a straightforward numpy oracle, with planted errors."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oprep.converters import magnitudes, numbers
from oprep.converters.comparison import ATOLS
from oprep.converters.report import Verdict
from oprep.opsets import tolerances
from oprep.opsets.rule import Tolerance

FLOATS = ["float16", "bfloat16", "float32", "float64"]


def dtype_of(name: str) -> Any:
    return ml_dtypes.bfloat16 if name == "bfloat16" else np.dtype(name)


@st.composite
def cases(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, Tolerance]:
    dtype = dtype_of(draw(st.sampled_from(FLOATS)))
    shape = tuple(draw(st.lists(st.integers(1, 7), max_size=3)))
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    size = 10.0 ** draw(st.integers(-4, 4))
    reference = np.asarray(generator.standard_normal(shape) * size).astype(dtype)
    candidate = np.array(reference)
    flat = candidate.reshape(-1)
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, flat.size - 1))
        planted = draw(st.sampled_from(["rel", "abs", "nan", "inf", "both"]))
        if planted == "rel":
            factor = 1 + draw(st.sampled_from([1e-6, 1e-4, 1e-2, 1.0]))
            flat[at] = np.float64(flat[at]) * factor
        elif planted == "abs":
            flat[at] = np.float64(flat[at]) + draw(st.sampled_from([1e-7, 1e-4, 1.0]))
        elif planted == "both":
            reference.reshape(-1)[at] = flat[at] = draw(st.sampled_from([np.nan, np.inf, -np.inf]))
        else:
            flat[at] = np.nan if planted == "nan" else np.inf
    tolerance = Tolerance(
        draw(st.sampled_from([0.0, 1e-6, 1e-3, 1e-1])), draw(st.sampled_from([0.0, 1e-5, 1e-1]))
    )
    return reference, candidate, tolerance


@given(cases())
def test_every_number_equals_the_oracle(
    case: tuple[np.ndarray, np.ndarray, Tolerance],
) -> None:
    reference, candidate, tolerance = case
    found = numbers.compare(reference, candidate, tolerance)
    r, c = reference.astype(np.float64), candidate.astype(np.float64)
    use = np.isfinite(r)
    if not use.any():
        assert found.verdict is Verdict.NOT_FINITE
        assert found.numbers is None
        return
    assert found.numbers is not None
    got = found.numbers
    assert got.elements == use.sum()
    assert got.left_out == (~use).sum()
    allowed = tolerance.atol + tolerance.rtol * np.abs(r)
    with np.errstate(invalid="ignore"):
        off = np.abs(c - r)
        passes = bool((off[use] <= allowed[use]).all())
    assert found.verdict is (Verdict.PASS if passes else Verdict.FAIL)
    assert got.rms == pytest.approx(math.sqrt(np.mean(r[use] ** 2)))
    lost = use & ~np.isfinite(c)
    if lost.any():
        assert got.max_abs == math.inf
        assert lost[got.worst_index]
        return
    assert got.max_abs == off[use].max()
    nonzero = use & (r != 0)
    if nonzero.any():
        assert got.max_rel == pytest.approx((off[nonzero] / np.abs(r[nonzero])).max())
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(use & (off > 0), off / allowed, 0.0)
    assert ratio[got.worst_index] == ratio.max()
    assert off[got.worst_index] == off[use & (ratio == ratio.max())].max()
    assert found.over == ratio.max()
    for atol, rtol in zip(ATOLS, found.needs, strict=bool(found.needs)):
        if rtol < math.inf:
            wider = Tolerance(rtol * (1 + 1e-12), atol)
            assert numbers.compare(reference, candidate, wider).verdict is Verdict.PASS
    assert bool(found.needs) == bool(off[use].any())
    assert got.reference == r[got.worst_index]
    assert got.candidate == c[got.worst_index]
    assert found.allowed == pytest.approx(allowed[got.worst_index])
    assert (got.passing_rtol is not None and got.passing_rtol <= tolerance.rtol) == passes
    if got.passing_rtol is not None:
        wider = Tolerance(got.passing_rtol * (1 + 1e-12), tolerance.atol)
        assert numbers.compare(reference, candidate, wider).verdict is Verdict.PASS
    if got.cosine is not None:
        norms = np.linalg.norm(r[use]) * np.linalg.norm(c[use])
        assert got.cosine == pytest.approx(float(np.dot(r[use], c[use]) / norms), abs=1e-9)
    if got.sqnr_db is not None:
        ratio = (r[use] ** 2).sum() / (off[use] ** 2).sum()
        assert got.sqnr_db == pytest.approx(10 * math.log10(ratio), abs=1e-6)
    else:
        assert not off[use].any() or not r[use].any()


@given(st.sampled_from(["int8", "uint8", "int32", "int64", "uint64", "bool"]), st.data())
def test_integers_and_bools_are_exact(name: str, data: st.DataObject) -> None:
    dtype = np.dtype(name)
    low, high = (0, 1) if name == "bool" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    values = data.draw(st.lists(st.integers(int(low), int(high)), min_size=1, max_size=9))
    reference = np.array(values, dtype)
    candidate = reference.copy()
    at = data.draw(st.integers(0, len(values) - 1))
    changed = data.draw(st.booleans())
    if changed:
        near = int(reference[at]) + 1 if int(reference[at]) < high else int(reference[at]) - 1
        candidate[at] = near
    found = numbers.compare(reference, candidate, Tolerance(0.0, 0.0))
    assert found.verdict is (Verdict.FAIL if changed else Verdict.PASS)
    assert found.numbers is not None
    assert found.numbers.max_abs >= (1.0 if changed else 0.0)
    if changed:
        assert found.numbers.worst_index == (at,)
        assert found.over == math.inf


@given(cases())
def test_ulps_count_the_representable_numbers_between(
    case: tuple[np.ndarray, np.ndarray, Tolerance],
) -> None:
    reference, _, _ = case
    if reference.dtype == ml_dtypes.bfloat16:
        return
    use = np.isfinite(reference) & (np.abs(reference) < np.finfo(reference.dtype).max / 2)
    candidate = reference.copy()
    for _ in range(3):
        candidate = np.where(use, np.nextafter(candidate, np.array(np.inf, reference.dtype)), 0)
    candidate = candidate.astype(reference.dtype)
    found = numbers.compare(reference, candidate, Tolerance(1.0, 1.0))
    if found.numbers is not None and use.any() and use[np.isfinite(reference)].all():
        assert found.numbers.max_ulp == 3


@pytest.mark.parametrize(
    ("candidate", "detail"),
    [
        (np.zeros(3, np.float16), "dtype float32 became float16"),
        (np.zeros((3, 1), np.float32), "shape [3] became [3, 1]"),
        (np.zeros(0, np.float32), "shape [3] became [0]"),
    ],
)
def test_another_dtype_or_shape_fails(candidate: np.ndarray, detail: str) -> None:
    found = numbers.compare(np.zeros(3, np.float32), candidate, Tolerance(1.0, 1.0))
    assert (found.verdict, found.detail) == (Verdict.FAIL, detail)
    assert found.over == math.inf


def test_zero_elements_are_no_evidence() -> None:
    empty = np.zeros((0, 4), np.float32)
    assert numbers.compare(empty, empty, Tolerance(0, 0)).verdict is Verdict.NO_EVIDENCE


def test_no_finite_element_is_not_finite() -> None:
    nan = np.full(4, np.nan, np.float32)
    found = numbers.compare(nan, nan, Tolerance(1, 1))
    assert found.verdict is Verdict.NOT_FINITE
    assert found.detail == "none of 4 elements is finite in the original"


def test_not_finite_in_the_candidate_only_fails_whatever_the_tolerance() -> None:
    reference, candidate = np.ones(4, np.float32), np.ones(4, np.float32)
    candidate[2] = np.inf
    found = numbers.compare(reference, candidate, Tolerance(math.inf, math.inf))
    assert found.verdict is Verdict.FAIL
    assert found.numbers is not None
    assert found.numbers.worst_index == (2,)


def test_strings_are_exact() -> None:
    reference = np.array(["a", "b"], object)
    assert numbers.compare(reference, reference.copy(), Tolerance(1, 1)).verdict is Verdict.PASS
    found = numbers.compare(reference, np.array(["a", "c"], object), Tolerance(1, 1))
    assert found.verdict is Verdict.FAIL
    assert "the first at [1]: 'b' became 'c'" in found.detail


def test_complex_numbers_are_compared_by_absolute_difference() -> None:
    reference = np.array([1 + 1j, 2 - 1j], np.complex64)
    candidate = reference + np.array([0, 1e-3j], np.complex64)
    found = numbers.compare(reference, candidate, Tolerance(1e-5, 1e-5))
    assert found.verdict is Verdict.FAIL
    assert found.numbers is not None
    assert found.numbers.worst_index == (1,)
    assert found.numbers.max_abs == pytest.approx(1e-3, rel=1e-3)
    loose = numbers.compare(reference, candidate, Tolerance(1e-3, 1e-5))
    assert loose.verdict is Verdict.PASS


def test_elements_that_flip_between_runs_of_the_original_are_left_out() -> None:
    reference, candidate = np.array([1, 2, 3]), np.array([1, 5, 3])
    flips = np.array([False, True, False])
    found = numbers.compare(reference, candidate, Tolerance(0, 0), flips=flips)
    assert found.verdict is Verdict.PASS
    assert found.numbers is not None
    assert (found.numbers.elements, found.numbers.left_out) == (2, 1)
    everywhere = numbers.compare(reference, candidate, Tolerance(0, 0), flips=np.ones(3, bool))
    assert everywhere.verdict is Verdict.NO_EVIDENCE


def test_blocks_do_not_change_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(0)
    reference = generator.standard_normal((7, 11)).astype(np.float32)
    candidate = reference + generator.standard_normal((7, 11)).astype(np.float32) * 1e-3
    whole = numbers.compare(reference, candidate, Tolerance(1e-3, 1e-4))
    for module in (numbers, magnitudes):
        monkeypatch.setattr(module, "BLOCK", 5)
    parts = numbers.compare(reference, candidate, Tolerance(1e-3, 1e-4))
    assert whole.numbers is not None
    assert parts.numbers is not None
    assert parts.verdict is whole.verdict
    assert parts.numbers.worst_index == whole.numbers.worst_index
    assert parts.numbers.max_abs == whole.numbers.max_abs
    assert parts.numbers.max_ulp == whole.numbers.max_ulp
    assert parts.numbers.cosine == pytest.approx(whole.numbers.cosine)


def test_squares_of_huge_values_do_not_overflow() -> None:
    reference = np.array([1e300, -1e300], np.float64)
    found = numbers.compare(reference, reference * (1 + 1e-12), Tolerance(1e-9, 0))
    assert found.verdict is Verdict.PASS
    assert found.numbers is not None
    assert found.numbers.rms == pytest.approx(1e300)
    assert found.numbers.sqnr_db == pytest.approx(240, abs=2)


@pytest.mark.parametrize("name", FLOATS)
def test_the_ulp_of_the_largest_value_is_its_spacing(name: str) -> None:
    dtype = dtype_of(name)
    array = np.array([0.5, -3.0, np.nan, np.inf], dtype)
    eps = float(ml_dtypes.finfo(dtype).eps)
    assert magnitudes.largest_ulp([array, np.array([1 << 40])]) == 2 * eps


def test_the_default_tolerance_has_three_floors() -> None:
    scale = tolerances.Scale(rms=2.0, ulp=1e-6, noise=0.0)
    assert tolerances.default("float32", tolerances.Scale(2.0)) == Tolerance(1.3e-6, 2e-5)
    assert tolerances.default("float32", tolerances.Scale(0.0, 1.0)) == Tolerance(1.3e-6, 4.0)
    assert tolerances.default("float32", tolerances.Scale(0.0, 0.0, 1.0)) == Tolerance(1.3e-6, 4.0)
    assert tolerances.default("int64", scale) == Tolerance(0.0, 0.0)
    assert tolerances.noisy(tolerances.Scale(rms=1.0, noise=0.011))
    assert not tolerances.noisy(tolerances.Scale(rms=1.0, noise=0.009))
    assert not tolerances.noisy(tolerances.Scale(rms=0.0, noise=0.0))


def test_a_user_limit_holds_whatever_a_rule_asks_for() -> None:
    asked = Tolerance(1e-1, 1e-2)
    assert tolerances.clamp(asked, 1e-3, None) == Tolerance(1e-3, 1e-2)
    assert tolerances.clamp(asked, None, 1e-3) == Tolerance(1e-1, 1e-3)
    assert tolerances.clamp(asked, 1.0, 1.0) == asked
