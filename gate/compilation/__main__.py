"""Write the table of a compilation matrix into a page: `python -m gate.compilation REPORT PAGE`.

REPORT is the directory that `nox -s compile -- --report-dir REPORT` wrote to; the table goes
between the marks `<!-- compiled: begin -->` and `<!-- compiled: end -->` of PAGE.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from pathlib import Path

from gate.compilation.fit import RULE
from gate.verdicts import Verdict, read

BEGIN, END = "<!-- compiled: begin -->", "<!-- compiled: end -->"


def table(verdicts: Iterable[Verdict]) -> Iterator[str]:
    """Yield the lines of a table with one row a kernel and one cell a target.

    A cell says how many compilations fit, the most registers a thread and the most shared memory
    that any of them takes, and the codes of those that do not fit.
    """
    found = [verdict for verdict in verdicts if verdict.rule == RULE and verdict.verdict != "skip"]
    kernels = dict.fromkeys(verdict.case.split(",")[0] for verdict in found)
    targets = list(dict.fromkeys(verdict.device for verdict in found))
    yield "| kernel | " + " | ".join(targets) + " |"
    yield "|---" * (1 + len(targets)) + "|"
    for kernel in kernels:
        of_kernel = [verdict for verdict in found if verdict.case.split(",")[0] == kernel]
        cells = [_cell([v for v in of_kernel if v.device == target]) for target in targets]
        yield f"| `{kernel}` | " + " | ".join(cells) + " |"
    fit = sum(verdict.verdict == "pass" for verdict in found)
    yield ""
    yield f"{fit} of {len(found)} compilations fit. A cell: those that fit, most registers a"
    yield "thread, most KiB of shared memory a block."


def _cell(verdicts: list[Verdict]) -> str:
    known = [verdict.details for verdict in verdicts if "registers" in verdict.details]
    fit = sum(verdict.verdict == "pass" for verdict in verdicts)
    reasons = dict.fromkeys(verdict.reason for verdict in verdicts if verdict.reason)
    registers = max((int(each["registers"]) for each in known), default=0)
    shared = max((int(each["shared"]) for each in known), default=0) / 1024
    words = f"{fit}/{len(verdicts)}, {registers}, {shared:.0f}"
    return f"{words}: {', '.join(reasons)}" if reasons else words


def main() -> None:
    """Put the table of a report into a page."""
    parser = argparse.ArgumentParser(prog="python -m gate.compilation", description=__doc__)
    parser.add_argument("report", type=Path)
    parser.add_argument("page", type=Path)
    options = parser.parse_args()
    before, mark, rest = options.page.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (mark and end):
        parser.error(f"{options.page}: got no {BEGIN} and {END}, expected both")
    lines = "\n".join(table(read(options.report)))
    options.page.write_text(f"{before}{BEGIN}\n\n{lines}\n\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
