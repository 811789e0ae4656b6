"""The op census: every operator that a backend runs, judged by tables of what devices can do.

It needs no device: what decides whether an operator falls back, waits or forms too much are its
name, its types and its shapes. docs/census.md says what is judged and what is not seen.
"""

from gate.census.calls import operator_calls, size_calls
from gate.census.observed import Census, Op, Operand, Place
from gate.census.price import stages_of
from gate.census.recorder import record
from gate.census.tables import Table, all_tables, read_table, tables_for
from gate.census.verdict import host_reads_of, judge_census

__all__ = [
    "Census",
    "Op",
    "Operand",
    "Place",
    "Table",
    "all_tables",
    "host_reads_of",
    "judge_census",
    "operator_calls",
    "read_table",
    "record",
    "size_calls",
    "stages_of",
    "tables_for",
]
