"""Plan rules against a module that was captured on the spot; runs in the child."""

from __future__ import annotations

from typing import Any


def plan(module: Any, args: tuple[Any, ...], rules: str, **export: Any) -> Any:
    """Give the plan of `[[rule]]` tables against a module."""
    import torch

    from oprep.converters.programs.conversion import ProgramConversion
    from oprep.converters.programs.program import Program
    from oprep.opsets.load import load_opset

    exported = torch.export.export(module, args, **export)
    program = Program(exported, "model", "object", "export")
    opset = load_opset("format = 1\n" + rules, "rules", file="rules.toml")
    return ProgramConversion(program, [opset]).plan(explain=True)


def rule(replace: str, with_: str = "tanh(x)", **keys: str) -> str:
    """Write one rule; `replace` is an equation, or TOML where it starts with a bracket."""
    written = replace if replace[0] in "[{" else repr(replace)
    more = "".join(f"{key} = {value}\n" for key, value in keys.items())
    return f'[[rule]]\nreplace = {written}\nwith = "{with_}"\n{more}'


def sites(found: Any, number: int = 0) -> list[str]:
    """Give the sites of one rule."""
    return [site.site for site in found.outcomes[number].sites]


def reasons(found: Any, number: int = 0) -> str:
    """Give the reasons of all near misses of one rule in one text."""
    return "\n".join(f"{miss.site}: {miss.reason}" for miss in found.outcomes[number].misses)


def of(forward: Any, **attributes: Any) -> Any:
    """Make a module of a function."""
    import torch

    class Written(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for name, value in attributes.items():
                if isinstance(value, torch.Tensor) and not isinstance(value, torch.nn.Parameter):
                    self.register_buffer(name, value)
                else:
                    setattr(self, name, value)

        def forward(self, *args: Any) -> Any:
            return forward(self, *args)

    return Written()
