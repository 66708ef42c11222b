"""`list_ops` for a PyTorch model: an archive from its JSON alone, everything else captured."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from oprep.converters.files import holding, sniff_file
from oprep.converters.program_job import ProgramJob
from oprep.converters.program_source import is_factory
from oprep.converters.pt2.gate import read_pt2
from oprep.converters.pt2.ops import op_table, record
from oprep.converters.report import OpCount, OpTable


def list_program_ops(job: ProgramJob) -> OpTable:
    """List the ops of a model of PyTorch, and what rules would match in it."""
    path = isinstance(job.model, str | Path)
    if path and not job.rules and not job.opset and not is_factory(job.model):
        listed = _listed(job)
        if listed is not None:
            return listed
    return _captured(job)


def _listed(job: ProgramJob) -> OpTable | None:
    """Read the ops of an archive from its JSON, without torch; None for anything else."""
    with holding(Path(job.model), max_bytes=job.max_bytes) as file:
        if sniff_file(file) != "pt2":
            return None
        archive = read_pt2(file, job.max_bytes, trusted=True)
        counts = tuple(
            OpCount(op, count, tuple(dtypes), tuple(regions))
            for op, (count, dtypes, regions) in op_table(archive).items()
        )
        return OpTable(record(archive), counts)


def _captured(job: ProgramJob) -> OpTable:
    from oprep.converters.code_files import read_code
    from oprep.converters.program_pipeline import CODE, opened
    from oprep.converters.rules import load_rules

    opsets, records = load_rules(job.rules, job.opset, no_code=job.no_code)
    code = read_code(opsets, CODE)
    with ExitStack() as stack:
        conversion = opened(job, opsets, records, code, stack)
        outcomes = conversion.plan() if opsets else ()
        counts = tuple(
            OpCount(item["op"], item["count"], tuple(item["dtypes"]), tuple(item["regions"]),
                    tuple(item["rules"]))
            for item in conversion.host.call("op_table")
        )  # fmt: skip
        return OpTable(conversion.record(), counts, outcomes)
