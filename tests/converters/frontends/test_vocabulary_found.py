"""Every form of the vocabulary as a pattern finds it, and what looks like it and is not."""

from __future__ import annotations

from collections import defaultdict
from functools import cache

import pytest
from proofs.reading import altered, found, pattern_of, rule_for, same_call, typed
from proofs.rows import Case, cases, results_of
from proofs.running import close, run_all
from proofs.samples import REFUSED, SAMPLES, Sample

from oprep.opsets.vocabulary import vocabulary


@cache
def all_cases(name: str) -> list[Case]:
    """Give the cases of a function: each form that is read, at each boundary, on one dtype."""
    function = vocabulary()[name]
    refused = REFUSED.get(name, ())
    return [
        case
        for case in cases(function, ("float32",))
        if function.onnx[case.form].read and case.sample not in refused
    ]


@cache
def ends(name: str) -> list[Case]:
    """Give the cases at the first and the last opset of each form."""
    opsets = defaultdict(set)
    for case in all_cases(name):
        opsets[case.form].add(case.opset)
    return [
        case for case in all_cases(name)
        if case.opset in (min(opsets[case.form]), max(opsets[case.form]))
    ]  # fmt: skip


def last(name: str) -> list[Case]:
    """Give two cases at the last opset of each form."""
    opsets = {case.form: case.opset for case in sorted(all_cases(name), key=lambda it: it.opset)}
    cases = [case for case in all_cases(name) if case.opset == opsets[case.form]]
    return [case for form in opsets for case in [it for it in cases if it.form == form][:2]]


@cache
def rule(name: str, number: int):
    return rule_for(name, SAMPLES[name][number])


def rule_of(name: str, sample: Sample):
    return rule(name, SAMPLES[name].index(sample))


@pytest.mark.parametrize("name", list(SAMPLES))
def test_a_call_is_found_in_every_form_that_says_it(name: str) -> None:
    missed = []
    for case in all_cases(name):
        matches, reason = found(rule_of(name, case.sample), typed(case.model))
        if len(matches) != 1 or not same_call(case, case.sample, matches[0]):
            missed.append(f"{case}: matches {matches}; {reason}")
    assert not missed, "\n".join(missed[:5])


@pytest.mark.parametrize("name", [name for name in SAMPLES if len(SAMPLES[name]) > 1])
def test_a_call_is_found_in_no_other_call_that_gives_another_result(name: str) -> None:
    wrong = []
    function = vocabulary()[name]
    for case in ends(name):
        model = typed(case.model)
        for other in SAMPLES[name]:
            same = other.tensors == case.sample.tensors and other != case.sample
            if not same or results_of(function, other) != len(case.expected):
                continue
            matches, _ = found(rule_of(name, other), model)
            if not all(same_call(case, other, match) for match in matches):
                wrong.append(f"{pattern_of(name, other)} in {case}")
    assert not wrong, "\n".join(wrong[:5])


def test_a_node_with_another_attribute_is_no_longer_the_call() -> None:
    jobs, labels = [], []
    for name in SAMPLES:
        for case in last(name):
            for label, model in altered(case):
                jobs.append((model, case.feeds))
                labels.append((case, label))
    # an axis that the rank lacks kills the runtime
    ran = run_all(jobs, apart=True)
    wrong, tried = [], set()
    for (case, label), (model, _), run in zip(labels, jobs, ran, strict=True):
        if run.by == "failed" or not any(map(close, run.outputs, case.expected)):
            continue
        tried.add(case.function)
        if found(rule_of(case.function, case.sample), typed(model))[0]:
            wrong.append(f"{case}: {label}")
    assert not wrong, f"{len(wrong)}\n" + "\n".join(wrong[:20])
    assert len(tried) > 40
