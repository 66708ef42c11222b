"""Reports made by hand, one for each way a run can end."""

from __future__ import annotations

import math
from dataclasses import replace

from oprep.converters.report import (
    Artifact,
    CheckResult,
    FileRecord,
    InputSetRecord,
    MissRecord,
    ModelRecord,
    Numbers,
    OpCount,
    OpTable,
    Report,
    RuleOutcome,
    SiteRecord,
    Verdict,
)
from oprep.opsets.rule import Tolerance

HOSTILE = "a\n::error::x\x1b[31m\u202e|`<b>##vso[task]" + "y" * 300

MODEL = ModelRecord(
    name="encoder.onnx",
    format="onnx",
    sha256="1f" * 32,
    nodes=231,
    ir_version=10,
    opsets=(("", 18), ("com.microsoft", 1)),
)

EXACT = Numbers(
    elements=256,
    left_out=0,
    max_abs=2.4e-07,
    max_rel=3e-07,
    rms=4e-08,
    cosine=1.0,
    sqnr_db=140.0,
    max_ulp=2.0,
    worst_index=(4, 7),
    reference=0.8125,
    candidate=0.81250024,
    passing_rtol=2e-07,
)
OFF = replace(
    EXACT, max_abs=3.1e-02, reference=0.812, candidate=0.843, passing_rtol=3.9e-02, left_out=3
)


def check(kind: str, name: str, measured: Numbers | None = EXACT, **more: object) -> CheckResult:
    """Make the result of one check; it passes unless `more` says otherwise."""
    values = {
        "check": kind,
        "name": name,
        "verdict": Verdict.PASS,
        "rule": "gelu-erf" if kind == "sites_close" else None,
        "measured": measured,
        "tolerance": Tolerance(rtol=1e-4, atol=1e-6) if measured else None,
        "tolerance_source": "gelu.toml:12" if measured else "",
        "allowed": 1e-5 if measured else None,
        "noise": 8e-07 if kind == "outputs_close" and measured else None,
        "dtype": "float32" if measured else "",
        "shape": (8, 10) if measured else (),
        "sets": 8,
    }
    return CheckResult(**{**values, **more})  # type: ignore[arg-type]


RULE = RuleOutcome(
    rule="gelu-erf",
    source="gelu.toml:8",
    opset="gelu.toml",
    replacement="com.acme::Gelu",
    expect="2",
    met=True,
    sites=(
        SiteRecord("blocks.0.mlp.act", ("Div_3", "Erf_4", "Add_5", "Mul_6")),
        SiteRecord("blocks.1.mlp.act", ("Div_9", "Erf_10"), kept=("Div_9_out",)),
    ),
    misses=(MissRecord("blocks.2.mlp.act", "constant is 1.5, the rule wants 1.4142135"),),
)
UNMET = replace(RULE, rule="gelu-fast", expect=">=1", met=False, sites=())
TOO_MANY = replace(RULE, rule="relu", expect="1", met=False)

VERIFIED = Report(
    command="convert",
    status="verified",
    model=MODEL,
    rules=(RULE,),
    checks=(
        check("signature_kept", "signature", None),
        check("sites_close", "blocks.0.mlp.act"),
        check("sites_close", "blocks.1.mlp.act", replace(EXACT, candidate=0.8125, max_abs=0.0)),
        check("outputs_close", "logits"),
        check("outputs_close", "pooled"),
    ),
    inputs=(
        InputSetRecord("normal", (("x", "float32", (8, 10)),)),
        InputSetRecord("wide", (("x", "float32", (8, 10)),), refused="index out of range"),
    ),
    artifact=Artifact(
        file=FileRecord("encoder.acme.onnx", "3f2a" * 16, 4096),
        format="onnx",
        functions=("com.acme::Gelu",),
    ),
    notes=("`Gelu` is in ai.onnx from opset 20 on",),
    versions={"onnx": "1.23.2", "oprep": "0.1.0"},
)
UNVERIFIED = replace(VERIFIED, status="not verified", checks=(), inputs=(), seconds=3.21)
ACCEPTED = replace(
    VERIFIED,
    status="accepted",
    accepted=("no evidence",),
    checks=(
        check("sites_close", "blocks.0.mlp.act"),
        check(
            "sites_close",
            "if/then/act",
            None,
            verdict=Verdict.NO_EVIDENCE,
            detail="no input set reaches it: `cond` of `If_3` is never true",
            accepted=True,
        ),
    ),
)
FAILED = replace(
    VERIFIED,
    status="failed",
    artifact=None,
    checks=(
        check("sites_close", "blocks.0.mlp.act", OFF, verdict=Verdict.FAIL),
        check("sites_close", "blocks.1.mlp.act", None, verdict=Verdict.CRASHED, detail="SIGSEGV"),
        check(
            "outputs_close",
            "logits",
            replace(OFF, candidate=math.nan, passing_rtol=None),
            verdict=Verdict.NOT_FINITE,
        ),
    ),
)
PLANNED = replace(
    VERIFIED, status="planned", rules=(RULE, UNMET, TOO_MANY), checks=(), inputs=(), artifact=None
)
UNCHANGED = replace(UNVERIFIED, status="unchanged", rules=(replace(RULE, expect=">=0", sites=()),))
COMPARED = replace(
    VERIFIED,
    command="verify",
    artifact=None,
    rules=(),
    candidate=replace(MODEL, name="encoder.acme.onnx"),
)
STRANGE = replace(
    FAILED,
    model=replace(MODEL, name=HOSTILE),
    notes=(HOSTILE,),
    rules=(
        replace(UNMET, rule=HOSTILE, replacement=HOSTILE, misses=(MissRecord(HOSTILE, HOSTILE),)),
    ),
    checks=(check("sites_close", HOSTILE, OFF, verdict=Verdict.FAIL, detail=HOSTILE),),
)

PROGRAM = replace(
    VERIFIED,
    status="failed",
    model=ModelRecord(
        "model.py:build", "factory", "2e" * 32, 3, 0, (), (FileRecord("w.pt", "4d" * 32, 100),)
    ),
    artifact=None,
    checks=(
        check("sites_close", "act/gelu"),
        check(
            "gradients_close",
            "act/gelu",
            OFF,
            rule="gelu-erf",
            verdict=Verdict.FAIL,
            detail="gradient to `linear`, in input set `example`",
        ),
        check("gradients_close", "input x", detail="gradient to `input x`"),
        check(
            "gradients_close",
            "a.weight",
            None,
            verdict=Verdict.FAIL,
            detail="gradient lost: the original gives one to `a.weight`",
        ),
        check("package_close", "output 0"),
    ),
)
BUNDLED = replace(
    PROGRAM,
    status="verified",
    checks=(PROGRAM.checks[0], PROGRAM.checks[2], PROGRAM.checks[4]),
    artifact=Artifact(
        FileRecord("out.pt2", "3f2a" * 16, 4096),
        "pt2",
        (FileRecord(f"out.pt2.oplib/{'5c' * 16}-ops.py", "5c" * 32, 100),),
        libraries=(f"out.pt2.oplib/{'5c' * 16}-ops.py",),
    ),
)

REPORTS = {
    "verified": VERIFIED,
    "unverified": UNVERIFIED,
    "accepted": ACCEPTED,
    "failed": FAILED,
    "planned": PLANNED,
    "unchanged": UNCHANGED,
    "compared": COMPARED,
    "strange": STRANGE,
    "program": PROGRAM,
    "bundled": BUNDLED,
}

OPS = OpTable(
    model=MODEL,
    ops=(
        OpCount("ai.onnx::Add", 84, ("float32", "int64"), ("main",)),
        OpCount("ai.onnx::Erf", 12, ("float32",), ("main", "If_3.then"), ("gelu-erf",)),
    ),
    rules=(RULE, UNMET),
)
OPSETS = OpTable(
    opsets=(
        ("activations", "oprep::Gelu", "0.5 * x * (1 + erf(x / sqrt(2)))", ("gelu", "gelu-aten")),
        ("activations", "oprep::Relu", "max(x, 0)", ("relu",)),
    )
)
