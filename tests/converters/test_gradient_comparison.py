"""Properties of the comparison of gradients: what passes, and what is planted and found."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oprep.converters.gradient_comparison import Sides, compare_own, compare_same
from oprep.opsets.rule import Tolerance

DTYPES = ("float16", "float32", "float64", "complex64")
SHAPES = st.sampled_from([(), (1,), (7,), (3, 5), (70, 1000)])
SEEDS = st.integers(0, 2**32 - 1)


def normal(shape, dtype, seed):
    generator = np.random.default_rng(seed)
    values = generator.standard_normal(shape)
    if dtype.startswith("complex"):
        values = values + 1j * generator.standard_normal(shape)
    return np.asarray(values).astype(dtype)


def sides(before, after, moved=None):
    return Sides("x", before, after, moved or (before, before), (1.0, 0.0))


@settings(max_examples=200, deadline=None)
@given(SHAPES, st.sampled_from(DTYPES), SEEDS)
def test_equal_gradients_pass_and_one_off_by_five_percent_at_one_place_fails(shape, dtype, seed):
    before = normal(shape, dtype, seed)
    assert compare_same(sides(before, before.copy()), None).verdict == "pass"
    after = before.copy().reshape(-1)
    place = int(np.argmax(np.abs(after)))
    after[place] *= 1.05
    found = compare_same(sides(before, after.reshape(shape)), None)
    assert found.verdict == "fail"
    assert np.ravel_multi_index(found.numbers.worst_index or (0,), shape or (1,)) == place


@settings(max_examples=200, deadline=None)
@given(SHAPES, st.sampled_from(DTYPES), SEEDS, st.booleans())
def test_a_gradient_that_is_gone_or_zero_is_always_found(shape, dtype, seed, gone):
    before = normal(shape, dtype, seed)
    before = np.where(before == 0, np.ones_like(before), before)
    found = compare_same(sides(before, None if gone else np.zeros_like(before)), None)
    assert found.verdict == "fail"
    words = "gradient lost" if gone else "gradient unexpectedly zero"
    assert found.detail.startswith(words)
    new = compare_same(sides(None if gone else np.zeros_like(before), before, (None, None)), None)
    assert new.verdict == "fail"
    assert new.detail.startswith("gradient where none was")


@settings(max_examples=200, deadline=None)
@given(st.integers(20, 400), SEEDS, st.floats(0, 1))
def test_any_choice_between_both_slopes_of_a_kink_passes_and_a_wrong_slope_elsewhere_fails(
    count, seed, choice
):
    gradient = normal((count,), "float64", seed)
    gradient = np.sign(gradient) * (np.abs(gradient) + 0.1)
    kinks = np.arange(count) < count // 5
    left, right = np.where(kinks, 0.0, gradient), gradient
    before, after = left, np.where(kinks, choice * gradient, gradient)
    assert compare_same(sides(before, after, (left, right)), None).verdict == "pass"
    wrong = np.where(kinks, after, 7 * gradient)
    assert compare_same(sides(before, wrong, (left, right)), None).verdict == "fail"


@settings(max_examples=200, deadline=None)
@given(st.integers(50, 400), SEEDS, st.floats(1e-12, 1e-3))
def test_a_gradient_of_nothing_but_rounding_is_no_failure(count, seed, size):
    draws = [size * normal((count,), "float64", seed + step) for step in range(4)]
    assert compare_same(sides(draws[0], draws[1], draws[2:]), None).verdict == "pass"
    wrong = draws[1].copy()
    wrong[seed % count] += 100 * size
    assert compare_same(sides(draws[0], wrong, draws[2:]), None).verdict == "fail"


@settings(max_examples=200, deadline=None)
@given(st.integers(16, 200), SEEDS, st.floats(1e-9, 1e-6))
def test_a_third_of_a_gradient_may_be_nothing_but_rounding(third, seed, size):
    noise = [size * normal((third,), "float64", seed + step) for step in range(4)]
    rest = normal((2 * third,), "float64", seed + 4)
    before, after, *moved = (np.concatenate([rest * 1e-3, item]) for item in noise)
    assert compare_same(sides(before, after, moved), None).verdict == "pass"
    after[2 * third + seed % third] += 100 * size
    assert compare_same(sides(before, after, moved), None).verdict == "fail"


def test_where_neither_side_has_a_gradient_nothing_flows():
    for before in (None, np.zeros(3)):
        found = compare_same(sides(before, None, (before, before)), None)
        assert (found.verdict, found.detail) == ("pass", "no gradient flows here")


def test_a_rule_s_tolerance_holds_for_gradients_too():
    before = np.ones(5, np.float32)
    after = before * np.float32(1.01)
    assert compare_same(sides(before, after), None).verdict == "fail"
    assert compare_same(sides(before, after), Tolerance(0.02, 0.0)).verdict == "pass"


def test_another_dtype_or_shape_is_a_failure():
    before = np.ones(5, np.float32)
    for after in (before.astype(np.float64), before.reshape(5, 1)):
        assert compare_same(sides(before, after), None).verdict == "fail"


@pytest.mark.parametrize("needed", [True, False])
def test_an_own_gradient_must_be_there_and_finite(needed):
    before = np.ones(5, np.float32)
    assert compare_own(sides(before, 7 * before), needed=needed).verdict == "pass"
    lost = compare_own(sides(before, None), needed=needed)
    assert lost.verdict == ("fail" if needed else "pass")
    spoiled = np.where(np.arange(5) == 2, np.nan, before)
    assert compare_own(sides(before, spoiled), needed=needed).verdict == "fail"
    assert compare_own(sides(spoiled, spoiled), needed=needed).verdict == "pass"
