"""The statement beside an artifact: what went in, what was replaced, how it was proven.

An in-toto statement with the SLSA provenance predicate; the sites are in `internalParameters`, and
the verdicts are a second statement inside. Nothing in it names a path, a user or a time.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from oprep.converters.files import read, sidecar_name
from oprep.converters.frontends.onnx_graph import OnnxView
from oprep.converters.match import Match
from oprep.converters.report import CheckResult, FileRecord, Report, plain
from oprep.opsets.errors import ExitCode, OprepError

STATEMENT = "https://in-toto.io/Statement/v1"
PROVENANCE = "https://slsa.dev/provenance/v1"
TEST_RESULT = "https://in-toto.io/attestation/test-result/v0.1"
BUILD_TYPE = "urn:oprep:convert:1"
MOST = {"rtol": 1e3, "atol": 1e30}
"""No tolerance of a sidecar is larger: it would let anything pass."""


def site_entry(match: Match) -> dict[str, Any]:
    """Describe a site so that it can be found again in the converted model."""
    assert isinstance(match.view, OnnxView)
    region = match.view.region
    inner = [value for node in match.nodes for value in region.outputs[node]
             if value and value not in match.roots]  # fmt: skip
    tolerance = match.rule.tolerance
    return {
        "rule": match.rule.name,
        "site": match.site,
        "region": region_key(match.view),
        "outputs": list(match.roots),
        "reads": sorted(match.reads),
        "inner": inner,
        "nodes": [match.view.node_name(node) for node in match.nodes],
        "tolerance": {"rtol": tolerance.rtol, "atol": tolerance.atol} if tolerance else None,
        "tolerance_source": str(match.rule.place("tolerance")) if tolerance else "",
    }


def region_key(view: OnnxView) -> list[list[Any]]:
    """Give the way to a region by names that a conversion keeps: outputs of the nodes on it."""
    steps: list[list[Any]] = []
    scope: OnnxView | None = view
    while scope is not None and scope.parent is not None:
        index, name, *position = scope.region.path[-1]
        steps.append([scope.parent.region.outputs[index][0], name, *position])
        scope = scope.parent
    if scope is not None and scope.region.function is not None:
        steps.append(["function", *scope.region.function])
    return steps[::-1]


def statement(
    report: Report,
    subject: Sequence[FileRecord],
    rules: Sequence[FileRecord],
    sites: Sequence[Mapping[str, Any]],
    parameters: Mapping[str, Any],
) -> str:
    """Write the sidecar of a conversion as JSON, keys sorted."""
    subjects = [_resource(item) for item in subject]
    model = FileRecord(report.model.name, report.model.sha256, 0)
    inputs = [model, *report.model.external, *rules]
    data = {
        "_type": STATEMENT,
        "subject": subjects,
        "predicateType": PROVENANCE,
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD_TYPE,
                "externalParameters": dict(parameters),
                "internalParameters": {
                    "versions": dict(report.versions),
                    "sites": list(sites),
                },
                "resolvedDependencies": [_resource(item) for item in inputs],
            },
            "runDetails": {
                "builder": {"id": "urn:oprep", "version": {"oprep": report.versions["oprep"]}},
                "byproducts": [],
            },
            "oprep_verification": _verification(report, subjects),
        },
    }
    return json.dumps(plain(data), indent=2, sort_keys=True, allow_nan=False) + "\n"


def _verification(report: Report, subjects: list[dict[str, Any]]) -> dict[str, Any]:
    passed = [_check_name(check) for check in report.checks if str(check.verdict) == "pass"]
    verdicts = [
        {"check": check.check, "name": check.name, "verdict": str(check.verdict),
         "accepted": check.accepted}
        for check in report.checks
    ]  # fmt: skip
    return {
        "_type": STATEMENT,
        "subject": subjects,
        "predicateType": TEST_RESULT,
        "predicate": {
            "result": {"verified": "PASSED", "unchanged": "PASSED"}.get(report.status, "WARNED"),
            "status": report.status,
            "configuration": [],
            "passedTests": passed,
            "warnedTests": [_check_name(c) for c in report.checks if c.accepted],
            "verdicts": verdicts,
        },
    }


def _check_name(check: CheckResult) -> str:
    return f"{check.check} {check.name}"


def _resource(item: FileRecord) -> dict[str, Any]:
    return {"name": item.name, "digest": {"sha256": item.sha256}}


def read_sidecar(artifact: Path) -> dict[str, Any] | None:
    """Read the sidecar of an artifact; None where there is none, exit 3 where it is broken."""
    path = artifact.with_name(sidecar_name(artifact.name))
    if not path.is_file():
        return None
    content = read(path, max_bytes=1 << 28)
    try:
        data = json.loads(content.data)
        sites = data["predicate"]["buildDefinition"]["internalParameters"]["sites"]
        subject = {item["name"]: item["digest"]["sha256"] for item in data["subject"]}
        inputs = {item["name"]: item["digest"]["sha256"] for item in
                  data["predicate"]["buildDefinition"]["resolvedDependencies"]}  # fmt: skip
        for site in sites:
            _ = site["rule"], site["site"], site["region"], site["outputs"], site["reads"]
            _check_tolerance(site.get("tolerance"))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        cause = str(error) if isinstance(error, OddTolerance) else ""
        raise OprepError(
            f"`{path.name}` is no sidecar of oprep",
            path.name,
            (cause,) if cause else (),
            help="delete it to compare the outputs only, or convert again",
            exit_code=ExitCode.MODEL,
        ) from error
    return {"sites": sites, "subject": subject, "inputs": inputs}


class OddTolerance(ValueError):
    """A tolerance that no conversion would have written."""


def _check_tolerance(tolerance: Any) -> None:
    if tolerance is None:
        return
    for key, most in MOST.items():
        value = tolerance[key]
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not 0 <= value <= most:
            raise OddTolerance(f"{key} is {value!r:.40}, a number from 0 to {most:g} is wanted")
