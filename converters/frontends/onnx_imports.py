"""Which versions of ONNX oprep understands, and whether what a model imports is among them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oprep.converters.frontends.onnx_fault import Place, refused

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from onnx import FunctionProto, ModelProto

OLDEST_IR = 3
OLDEST_OPSET = 7
STANDARD = ("", "ai.onnx")
CONVERT = "convert the model with `onnx.version_converter`"
UPGRADE = "install a newer `onnx` package"


def lint_ir_version(model: ModelProto, where: str) -> None:
    """Refuse an IR version outside what this onnx package knows."""
    import onnx

    newest = int(onnx.IR_VERSION)
    if not OLDEST_IR <= model.ir_version <= newest:
        raise refused(
            f"IR version {model.ir_version} is not supported",
            where,
            f"versions {OLDEST_IR} to {newest} are",
            UPGRADE if model.ir_version > newest else "",
        )


def lint_imports(
    holder: ModelProto | FunctionProto,
    domains: AbstractSet[str],
    functions: AbstractSet[tuple[str, str, str]],
    where: str,
    place: Place | None = None,
) -> None:
    """Refuse unknown or contradicting imports, and used domains that need one and have none.

    Domains of a runtime's own need none, as in ONNX Runtime; the standard one and those of local
    functions do.
    """
    holder_name = (place or Place()).described() if place else "the model"
    imported: dict[str, int] = {}
    for entry in holder.opset_import:
        domain = "" if entry.domain in STANDARD else entry.domain
        if imported.setdefault(domain, entry.version) != entry.version:
            versions = f"versions {imported[domain]} and {entry.version}"
            name = domain or "ai.onnx"
            raise refused(f"{holder_name} imports domain `{name}` twice", where, versions)
    for domain, version in imported.items():
        _lint_version(domain, version, holder_name, where)
    local = {domain for domain, _, _ in functions}
    for domain in sorted(domains):
        name = "" if domain in STANDARD else domain
        if name not in imported and (not name or name in local):
            raise refused(
                f"{holder_name} does not import domain `{name or 'ai.onnx'}`",
                where,
                "nodes of that domain are in it, and their version cannot be known",
            )


def _lint_version(domain: str, version: int, holder_name: str, where: str) -> None:
    newest = _newest(domain)
    if newest is None:
        return
    name = domain or "ai.onnx"
    oldest = 1 if domain else OLDEST_OPSET
    if not oldest <= version <= newest:
        raise refused(
            f"opset {version} of domain `{name}` is not supported",
            where,
            f"{holder_name} imports it; versions {oldest} to {newest} are supported",
            UPGRADE if version > newest else CONVERT,
        )


def _newest(domain: str) -> int | None:
    """Give the newest opset of a standard domain that this onnx package knows."""
    import onnx

    if not domain:
        return int(onnx.defs.onnx_opset_version())
    columns = {"ai.onnx.ml": 3, "ai.onnx.training": 4, "ai.onnx.preview.training": 4}
    if domain not in columns:
        return None
    column = columns[domain]
    return max(int(row[column]) for row in onnx.helper.VERSION_TABLE if len(row) > column)
