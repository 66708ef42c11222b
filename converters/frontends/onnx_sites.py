"""Find the sites of a sidecar again in two models, and describe them for the twin graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from oprep.converters.frontends.onnx_graph import OnnxGraph, OnnxView
from oprep.converters.frontends.onnx_rewrite import Names
from oprep.converters.sidecar import region_key
from oprep.converters.twin import TwinPlan, TwinSite
from oprep.opsets.errors import ExitCode, OprepError
from oprep.opsets.rule import Tolerance

if TYPE_CHECKING:
    from onnx import NodeProto

    from oprep.converters.frontends.onnx_model import OnnxModel


def plan_of_sites(
    before: OnnxModel, after: OnnxModel, sites: Sequence[Mapping[str, Any]]
) -> TwinPlan:
    """Take each site's replacement out of the converted model: what leads to its outputs there."""
    old, new = OnnxGraph(before.proto), OnnxGraph(after.proto)
    old_views = {_key(region_key(view)): view for view in old.views}
    new_views = {_key(region_key(view)): view for view in new.views}
    names = Names(old)
    found = []
    for site in sites:
        key = _key(site["region"])
        if key not in old_views or key not in new_views:
            raise _lost(site, after.name)
        found.append(_site(site, old_views[key], new_views[key], names, after.name))
    own = {(item.domain, item.name, item.overload) for item in before.proto.functions}
    functions = [item for item in after.proto.functions
                 if (item.domain, item.name, item.overload) not in own]  # fmt: skip
    imported = {entry.domain for entry in before.proto.opset_import}
    imports = [(entry.domain, entry.version) for entry in after.proto.opset_import
               if entry.domain not in imported]  # fmt: skip
    return TwinPlan(found, functions, imports)


def _key(region: Any) -> str:
    return repr([list(step) for step in region])


def _site(
    site: Mapping[str, Any], old: OnnxView, new: OnnxView, names: Names, model: str
) -> TwinSite:
    outputs = [str(value) for value in site["outputs"]]
    reads = {str(value) for value in site["reads"]}
    if not all(value in old.region.producer and value in new.region.producer for value in outputs):
        raise _lost(site, model)
    nodes = _leading_to(new, outputs, reads | set(old.region.producer) - set(outputs))
    renamed = {value: names.fresh(f"{value}__candidate") for value in outputs}
    for node in nodes:
        for value in node.output:
            if value and value not in renamed:
                renamed[value] = names.fresh(f"{value}__candidate")
    tolerance = site.get("tolerance")
    inner = [str(value) for value in site.get("inner", ()) if str(value) in old.region.producer]
    return TwinSite(
        str(site["site"]),
        str(site["rule"]),
        old.region.path,
        max(old.region.producer[value] for value in outputs),
        tuple(_renamed(node, renamed) for node in nodes),
        tuple((value, renamed[value]) for value in outputs),
        tuple(dict.fromkeys([*sorted(reads), *inner])),
        Tolerance(float(tolerance["rtol"]), float(tolerance["atol"])) if tolerance else None,
        tuple(inner),
    )


def _leading_to(view: OnnxView, outputs: Sequence[str], known: set[str]) -> list[NodeProto]:
    """Give the nodes between values that the original has and the outputs, in order."""
    region = view.region
    wanted: set[int] = set()
    work = list(outputs)
    first = True
    while work:
        value = work.pop()
        node = region.producer.get(value)
        if node is None or node in wanted or (value in known and not (first and value in outputs)):
            continue
        wanted.add(node)
        work.extend(item for item in region.inputs[node] if item)
        work = [item for item in work if item in outputs or item not in known]
    return [view.nodes[index] for index in sorted(wanted)]


def _renamed(node: NodeProto, names: Mapping[str, str]) -> NodeProto:
    copy = type(node)()
    copy.CopyFrom(node)
    copy.ClearField("name")  # the original's node beside it has that name
    copy.input[:] = [names.get(value, value) for value in node.input]
    copy.output[:] = [names.get(value, value) for value in node.output]
    return copy


def _lost(site: Mapping[str, Any], model: str) -> OprepError:
    return OprepError(
        f"site `{site['site']}` of the sidecar is not in `{model}`",
        model,
        help="delete the sidecar to compare the outputs only, or convert again",
        exit_code=ExitCode.MODEL,
    )
