"""Real PyTorch ops made of a class with `forward` and `backward`."""

from __future__ import annotations

from oprep.opsets.rp.composite import register_composite
from oprep.opsets.rp.contract import Contract
from oprep.opsets.rp.function import Rp
from oprep.opsets.rp.handle import Handle
from oprep.opsets.rp.names import ops
from oprep.opsets.rp.registry import (
    class_of,
    contract_of,
    definition_of,
    is_registered,
    register_autograd,
    registered,
)
from oprep.opsets.rp.standard import replace_standard

__all__ = [
    "Contract",
    "Handle",
    "Rp",
    "class_of",
    "contract_of",
    "definition_of",
    "is_registered",
    "ops",
    "register_autograd",
    "register_composite",
    "registered",
    "replace_standard",
]
