"""Every function of the vocabulary in PyTorch: what its overloads give, and where it is found."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from proofs.samples import SAMPLES
from torch_child import in_child

NOT_WRITTEN = {"local_response_norm"}
"""Functions that torch writes with the sizes of its input, so that no equation is found."""
NAMES = [name for name in SAMPLES if name not in NOT_WRITTEN]
FOUND_LESS = {
    "dropout": {1},  # training
}
"""Samples that torch itself writes otherwise."""


def prepared(name: str) -> list[tuple[Any, dict[str, Any], list[Any]]]:
    """Give the samples of a function that torch takes: sample, tensors by name, its answer."""
    from proofs.rows import array, names_of, torch_answer

    found = []
    for sample in SAMPLES[name]:
        feeds = {key: array(key, "float32") for key in names_of(sample)}
        answer = torch_answer(name, sample, feeds)
        assert answer is not None, (name, str(sample))
        found.append((sample, feeds, answer))
    return found


@cache
def taker(results: int) -> str:
    """Register an op that takes tensors and gives so many."""
    import torch

    library = torch.library.Library("vocabulary_test", "FRAGMENT")
    kinds = ", ".join(["Tensor"] * results)
    library.define(f"f{results}(Tensor[] xs) -> {kinds if results == 1 else f'({kinds})'}")
    library.impl(
        f"f{results}",
        lambda xs: xs[0] if results == 1 else (xs[0],) * results,
        "CompositeExplicitAutograd",
    )
    KEPT.append(library)
    return f"vocabulary_test::f{results}"


KEPT: list[Any] = []
"""A registration ends with its library."""


def agrees(results: Any, answer: list[Any]) -> bool:
    from proofs.running import close

    many = list(results) if isinstance(results, tuple | list) else [results]
    return len(many) == len(answer) and not any(
        close(one.numpy(), other) for one, other in zip(many, answer, strict=True)
    )


@pytest.mark.parametrize("name", list(SAMPLES))
@in_child()
def test_an_equation_says_in_torch_what_the_function_gives(name: str) -> None:
    import torch
    from proofs.rows import arguments, call_of

    from oprep.converters.programs.builders import EagerBuilder
    from oprep.converters.programs.meaning import say
    from oprep.opsets.syntax import Name
    from oprep.opsets.vocabulary import vocabulary

    if name in NOT_WRITTEN:
        return
    wrong = []
    for sample, feeds, answer in prepared(name):
        scope: dict[str, Any] = {
            key: torch.from_numpy(value.copy()) for key, value in feeds.items()
        }
        scope |= {
            f"{key}_value": value
            for key, value in arguments(vocabulary()[name], sample).items()
            if not isinstance(value, Name | tuple)
        }
        results = say(call_of(name, vocabulary()[name], sample, len(answer)), scope, EagerBuilder())
        if not agrees(results, answer):
            wrong.append(f"{name}({sample}): {results} for {answer}")
    assert not wrong, "\n".join(wrong[:3])[:1500]


@pytest.mark.parametrize("name", list(SAMPLES))
@in_child()
def test_every_overload_gives_what_the_function_gives(name: str) -> None:
    """Each overload of the row takes some sample and gives the function's own answer."""
    import torch
    from proofs.rows import arguments

    from oprep.converters.programs.builders import EagerBuilder
    from oprep.converters.programs.calling import Caller
    from oprep.converters.programs.fitting import Misfit
    from oprep.converters.programs.overloads import overloads_of
    from oprep.opsets.expression import UNKNOWN
    from oprep.opsets.syntax import Name
    from oprep.opsets.vocabulary import vocabulary

    function = vocabulary()[name]
    assert len(overloads_of(name)) == len(function.aten), f"{name} names an overload torch lacks"
    wrong = []
    for overload in overloads_of(name):
        for sample, feeds, answer in prepared(name):
            given = {
                key: tuple(torch.from_numpy(feeds[item.name].copy()) for item in value)
                if isinstance(value, tuple)
                else torch.from_numpy(feeds[value.name].copy())
                if isinstance(value, Name)
                else value
                for key, value in arguments(function, sample).items()
            }
            caller = Caller(EagerBuilder(), lambda expression: UNKNOWN, "")
            bound = caller.bind(function, [], given)
            try:
                fitted = caller.fitter({}).function(function, overload, bound)
                results = caller.make(fitted, numbers=True)[: len(answer)]
            except (Misfit, RuntimeError, TypeError, IndexError):
                continue
            if not agrees(results, answer):
                wrong.append(f"{overload} for {name}({sample}): {results} for {answer}")
    assert not wrong, "\n".join(wrong[:3])[:1500]


@pytest.mark.parametrize("name", NAMES)
@in_child()
def test_a_call_is_found_in_a_captured_program_and_no_other_is(name: str) -> None:
    import torch
    from programs_matching import of
    from proofs.reading import rule_for
    from proofs.rows import called

    from oprep.converters.programs.conversion import ProgramConversion
    from oprep.converters.programs.program import Program

    samples = prepared(name)
    wrong = []
    for number, (sample, feeds, _) in enumerate(samples):
        names = list(dict.fromkeys(feeds))
        module = of(
            lambda m, *given, s=sample, n=names: called(name, s, dict(zip(n, given, strict=True)))
        )
        given = tuple(torch.from_numpy(feeds[key].copy()) for key in names)
        exported = torch.export.export(module, given)
        placeholders = [node.name for node in exported.graph.nodes if node.op == "placeholder"]
        for other_number, (other, other_feeds, answer) in enumerate(samples):
            if list(dict.fromkeys(other_feeds)) != names:
                continue
            plan = ProgramConversion(
                Program(exported, "model", "object", "export"),
                [rule_for(name, other, taker(len(answer)))],
            ).plan(explain=True)
            whole = [
                match
                for match in plan.matches
                if {str(match.bound.get(key)) for key in names} <= {*placeholders, "None"}
            ]
            if (
                other_number == number
                and len(whole) != 1
                and number not in FOUND_LESS.get(name, ())
            ):
                misses = [miss.reason for miss in plan.outcomes[0].misses[:2]]
                graph = [str(n.target) for n in exported.graph.nodes if n.op == "call_function"]
                wrong.append(f"{name}({sample}): {len(whole)} matches in {graph}; {misses}")
            if (
                other_number != number
                and whole
                and not agrees([torch.from_numpy(item) for item in answer], samples[number][2])
            ):
                wrong.append(f"{name}({other}) is found in {name}({sample})")
    assert not wrong, "\n".join(wrong[:4])[:2000]
