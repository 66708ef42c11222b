"""Convert a small module by rules and prove the result in this process; used in a torch child."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from oprep.converters.program_proof import ProofOptions, prove_program
from oprep.converters.program_sides import InProcess, Opening
from oprep.converters.programs.conversion import ProgramConversion
from oprep.converters.programs.ops import install
from oprep.converters.programs.program import Example, Program
from oprep.converters.programs.subject import Site, Subject
from oprep.converters.prove import Proof
from oprep.opsets.load import load_opset

HELD = "oprep.converters.programs.proving:held_here"

Evaluate = Callable[[Any, Mapping[Any, Any]], Sequence[Any]]


def program(
    module: torch.nn.Module,
    args: tuple[Any, ...],
    dynamic: Any = None,
    examples: tuple[Example, ...] = (),
) -> Program:
    exported = torch.export.export(module, args, dynamic_shapes=dynamic)
    return Program(exported, "model", "object", "export", examples)


def subject(
    found: Program,
    rules: str,
    ops: Sequence[str] = (),
    given: tuple[Example, ...] = (),
    *,
    rewritten: bool = True,
) -> tuple[Subject, Any]:
    """Plan a conversion; give the subject of its proof, and the converted program."""
    opset = load_opset("format = 1\n" + rules, "rules")
    install(opset.ops, {})
    conversion = ProgramConversion(found, [opset])
    matches = conversion.plan().matches
    assert matches, "no rule matched"
    sites = tuple(
        Site(match, conversion.replacement(match.rule, match.order).evaluate, tuple(ops))
        for match in matches
    )
    return Subject(found, sites, given), conversion.rewritten(matches) if rewritten else None


def rule(replace: str, put: str, **more: str) -> str:
    keys = "".join(f"{key} = {value}\n" for key, value in more.items())
    return f'[[rule]]\nname = "r"\nreplace = "{replace}"\nwith = "{put}"\n{keys}'


def prove(held: Subject, artifact: Any, **options: Any) -> Proof:
    settings = ProofOptions(start_original=InProcess, start_artifact=InProcess, **options)
    return prove_program(Opening(HELD, {"held": held}), Opening(HELD, {"held": artifact}), settings)


def proven(
    module: torch.nn.Module, args: tuple[Any, ...], rules: str, dynamic: Any = None, **options: Any
) -> Proof:
    return prove(*subject(program(module, args, dynamic), rules), **options)


def with_sites(held: Subject, evaluate: Evaluate) -> Subject:
    """Let every site be computed in another way."""
    return Subject(held.program, tuple(Site(s.match, evaluate, s.ops) for s in held.sites))


def by_check(proof: Proof, check: str) -> dict[str, Any]:
    return {item.name: item for item in proof.checks if item.check == check}


def told(proof: Proof) -> str:
    rows = [f"{c.check} {c.name}: {c.verdict} {c.detail}" for c in proof.checks]
    return "\n".join([*rows, *proof.notes])


def all_pass(proof: Proof) -> bool:
    assert proof.checks
    return all(item.verdict == "pass" for item in proof.checks)
