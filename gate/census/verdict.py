"""The verdict 'census' on one operation of a backend."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gate.backends import Backend, BackendError
from gate.census import rules
from gate.census.calls import Recorded, operator_calls, size_calls, workspace_of
from gate.census.tables import Table, tables_for
from gate.operations import Operation
from gate.rules.finding import Judgement


def judge_census(
    backend: Backend, operation: Operation, device: str = "cpu"
) -> tuple[Judgement, dict[str, Any]]:
    """Return the judgement on what an operation runs, and the details of the report.

    Raises NotSupported where the backend does not provide or support the operation.
    """
    tables = tables_for(backend.devices)
    reads = host_reads_of(backend)
    small = operator_calls(backend, operation, device)
    large = size_calls(backend, operation, device)
    # Several forms of a call run the same lines: what is wrong there is said once.
    findings: rules.Findings = {}
    for each in small:
        for table in tables:
            findings |= rules.table_findings(each.census, table, each.dims, reads) | findings
    for each in large:
        about = (each.census, each.dims, each.allowance)
        findings |= rules.materialisation_findings(*about) | findings
        findings |= rules.copy_findings(*about) | findings
    judgement = Judgement("census", _tolerance(backend, tables, reads), tuple(findings.values()))
    return judgement, _details(small, large, tables, reads)


def host_reads_of(backend: Backend) -> Mapping[str, int]:
    """Return the functions that a backend declares to read from the device, with how often."""
    declared = getattr(backend.target, "host_reads", {})
    sound = isinstance(declared, Mapping) and all(
        isinstance(name, str) and isinstance(most, int) and most >= 0
        for name, most in declared.items()
    )
    if not sound:
        raise BackendError(
            f"--backend {backend.spec}: host_reads: got {declared!r}, expected a dict of "
            "function names and numbers of reads"
        )
    return declared


def _tolerance(backend: Backend, tables: list[Table], reads: Mapping[str, int]) -> str:
    names = ", ".join(table.name for table in tables) or "none (host memory only)"
    declared = ", ".join(f"{name} {most}" for name, most in sorted(reads.items())) or "none"
    workspace = workspace_of(backend) or "none"
    return (
        f"census: exact; tables: {names}; declared: host reads for each pass: {declared}, "
        f"bytes of workspace: {workspace}"
    )


def _details(
    small: list[Recorded], large: list[Recorded], tables: list[Table], reads: Mapping[str, int]
) -> dict[str, Any]:
    ops = [op for each in small for op in each.census.ops]
    opaque: dict[str, int] = {}
    for each in small:
        for name, count in each.census.opaque.items():
            opaque[name] = opaque.get(name, 0) + count
    return {
        "recorded_as": sorted({each.census.recorded_as for each in small}),
        "calls": len(small) + len(large),
        "operators": len(ops),
        "kinds_of_operators": len({op.name for op in ops}),
        "opaque_kernels": opaque,
        "declared_host_reads": dict(reads),
        "host_reads_within_declaration": [
            rules.declared_reads(each.census, tables, reads) for each in small
        ],
        "copied_bytes": [rules.copied_bytes(each.census) for each in large],
        "not_in_table": {
            table.name: sorted({n for each in small for n in rules.unlisted(each.census, table)})
            for table in tables
            if table.reason == "fallback"
        },
    }
