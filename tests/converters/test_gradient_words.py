"""What a user reads where a gradient is wrong: the fact, where, both values, and what helps."""

from __future__ import annotations

import pytest

from oprep.converters.prove import Proof
from oprep.converters.report import CheckResult, ModelRecord, Numbers, Report, Verdict
from oprep.converters.settings import Settings
from oprep.converters.verdicts import verified
from oprep.opsets.errors import OprepError
from oprep.opsets.rule import Tolerance

OFF = Numbers(9, 0, 6.0, 6.0, 1.0, None, None, None, (1, 2), 0.5, 3.5, None)


def raised(name, rule, detail, measured=None, advice=None):
    check = CheckResult("gradients_close", name, Verdict.FAIL, rule, measured, allowed=1e-6,
                        dtype="float32", shape=(3, 3), detail=detail)  # fmt: skip
    passed = CheckResult("sites_close", "relu", Verdict.PASS, "seven")
    checks = (passed, check)
    report = Report("convert", "failed", ModelRecord("m.pt2", "pt2", "", 1, 0, ()), checks=checks)
    proof = Proof(checks, (), None, (), advice=advice or {})
    with pytest.raises(OprepError) as caught:
        verified(report, proof, Settings(), "m.pt2")
    assert caught.value.exit_code == 4
    return caught.value


def test_another_gradient_at_a_site_shows_both_values_and_both_ways_out():
    error = raised("relu", "seven", "gradient to `linear`", OFF)
    said = "the gradient to `linear` differs from the original's at site `relu` (rule `seven`)"
    assert error.message == said
    assert error.notes[0].startswith("worst at [1, 2]: 0.5 became 3.5, off by 3.0e+00")
    assert error.help == (
        'correct the op\'s backward, or set `gradient = "own"` on `seven` if it is meant'
    )


@pytest.mark.parametrize("finding", ["gradient lost", "gradient unexpectedly zero"])
def test_a_lost_gradient_is_named_as_such(finding):
    error = raised("relu", "seven", f"{finding}: `linear`")
    assert error.message == f"{finding} at site `relu` (rule `seven`)"
    assert error.help == 'give the op a backward, or set `gradient = "none"` on `seven`'


def test_at_the_ends_what_it_goes_to_is_named():
    error = raised("0.weight", None, "gradient to `0.weight`", OFF)
    assert error.message == "the gradient to `0.weight` differs from the original's"
    assert "--no-grad" in error.help
    error = raised("input x", None, "gradient to `input x`", OFF)
    assert error.message == "the gradient to input `x` differs from the original's"
    error = raised("0.weight", None, "gradient lost: the original gives one to `0.weight`")
    assert error.message == "gradient lost to `0.weight`"
    assert error.notes == ("gradient lost: the original gives one to `0.weight`",)


def test_an_artifact_that_gives_no_gradient_at_all_is_said_so():
    error = raised("all", None, "gradient lost: the candidate cannot run here: no backward")
    assert error.message == "gradient lost: the converted model gives none at all"
    assert error.notes == ("gradient lost: the candidate cannot run here: no backward",)


def test_a_tolerance_is_advised_for_what_is_off_and_not_for_what_is_lost():
    advice = {"seven": Tolerance(1e-3, 0.0)}
    error = raised("0.weight", None, "gradient to `0.weight`", OFF, advice)
    assert "rtol 0.001 would pass" in error.notes
    assert "`tolerance = { rtol = 1e-03, atol = 0.0 }`" in error.help
    lost = "gradient lost: the original gives one to `0.weight`"
    error = raised("0.weight", None, lost, advice=advice)
    assert error.notes == (lost,)
    assert "tolerance = " not in error.help
