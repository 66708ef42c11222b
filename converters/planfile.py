"""A plan as a file: which sites of which model, by rule; written, read, and applied."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from oprep.converters.files import read
from oprep.opsets.errors import ExitCode, OprepError

if TYPE_CHECKING:
    from oprep.converters.match import Match

SCHEMA = 1
STALE = {
    "model": "the plan was made for another model",
    "rules": "the plan was made with other rules",
}


Planned: TypeAlias = Mapping[str, Any]
"""One site of a plan: rule, site, region, outputs and nodes, by their names in messages."""


def planned(match: Match) -> dict[str, Any]:
    """Describe a match as a plan file does."""
    return {
        "rule": match.rule.name,
        "site": match.site,
        "region": match.view.region.label,
        "outputs": [str(value) for value in match.roots],
        "nodes": [match.view.node_name(node) for node in match.nodes],
    }


def plan_text(model_sha256: str, rules_sha256: str, sites: Sequence[Planned]) -> str:
    """Write a plan as JSON; sites may be deleted from it before it is applied."""
    data = {"schema": SCHEMA, "model": model_sha256, "rules": rules_sha256, "sites": list(sites)}
    return json.dumps(data, indent=2, sort_keys=True) + "\n"


def apply_plan(
    path: Path, model_sha256: str, rules_sha256: str, sites: Sequence[Planned]
) -> list[int]:
    """Give the positions of the sites that a plan file names, in their order.

    A plan for another model or other rules is refused, and one that was edited in any way but by
    deleting sites.
    """
    data = _read(path)
    for key, now in (("model", model_sha256), ("rules", rules_sha256)):
        if data[key] != now:
            raise OprepError(
                STALE[key],
                path.name,
                (f"sha256 {str(data[key])[:16]}… in the plan, {now[:16]}… now",),
                "make a new one with `--plan-out`",
                ExitCode.EXPECTATION,
            )
    by_key = {_key(site): position for position, site in enumerate(sites)}
    chosen: set[int] = set()
    for site in data["sites"]:
        position = by_key.get(_key(site))
        if position is None:
            fact = f"the plan names a site that rule `{site['rule']}` does not match"
            raise _stale(path, fact, f"site `{site['site']}`")
        if position in chosen:
            raise _stale(path, "the plan names a site twice", f"site `{site['site']}`")
        found = sites[position]
        if (site["site"], site["nodes"]) != (found["site"], found["nodes"]):
            note = (f"the plan has {', '.join(site['nodes'])}; "
                    f"the rule matches {', '.join(found['nodes'])}")  # fmt: skip
            raise _stale(path, f"the plan has other nodes for site `{found['site']}`", note)
        chosen.add(position)
    if not chosen:
        raise _stale(path, "the plan names no site", "nothing would be replaced")
    return sorted(chosen)


def _stale(path: Path, fact: str, note: str) -> OprepError:
    return OprepError(
        fact, path.name, (note,), "make a new one with `--plan-out`", ExitCode.EXPECTATION
    )


def _key(site: Planned) -> tuple[str, ...]:
    return (site["rule"], site["region"], *map(str, site["outputs"]))


def _read(path: Path) -> dict[str, Any]:
    content = read(path, max_bytes=1 << 28, exit_code=ExitCode.EXPECTATION)
    try:
        data = json.loads(content.data)
    except (ValueError, RecursionError) as error:
        raise _bad(path, "it is not JSON") from error
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        raise _bad(path, f"it has no `schema` {SCHEMA}")
    unknown = sorted(set(data) - {"schema", "model", "rules", "sites"})
    if unknown:
        raise _bad(path, f"it has the unknown key `{unknown[0]}`")
    sites = data.get("sites")
    if not isinstance(sites, list) or not all(_is_site(site) for site in sites):
        raise _bad(path, "its `sites` are not a list of rule, site, region, outputs and nodes")
    if not isinstance(data.get("model"), str) or not isinstance(data.get("rules"), str):
        raise _bad(path, "it lacks `model` or `rules`")
    return data


def _is_site(site: Any) -> bool:
    if not isinstance(site, dict) or set(site) != {"rule", "site", "region", "outputs", "nodes"}:
        return False
    lists = (site["outputs"], site["nodes"])
    return all(isinstance(site[key], str) for key in ("rule", "site", "region")) and all(
        isinstance(items, list) and all(isinstance(item, str) for item in items) for items in lists
    )


def _bad(path: Path, note: str) -> OprepError:
    return OprepError(
        f"`{path.name}` is no plan of oprep",
        str(path.name),
        (note,),
        "make one with `--plan-out`",
        ExitCode.EXPECTATION,
    )
