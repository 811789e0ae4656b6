"""Write and show a report again: `python -m gate.report --report-dir DIR`.

It ends a report that several runs made together (`--report-open`). Exit status as that of a run: 0
all passed, 1 something failed, 2 nothing was checked.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from pathlib import Path

from gate.report import Content, conclusion, join_junit, write_files


def main(arguments: list[str] | None = None) -> int:
    """Write the files of the report anew, print its conclusion and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m gate.report", description=__doc__)
    parser.add_argument("--report-dir", type=Path, default=Path("gate-report"), metavar="DIR")
    directory: Path = parser.parse_args(arguments).report_dir.resolve()
    if not directory.is_dir():
        print(f"--report-dir: got {directory}, expected the directory of a report", file=sys.stderr)
        return 2
    join_junit(directory)
    write_files(directory)
    terminal = sys.stdout.isatty() and os.environ.get("TERM") not in ("dumb", "unknown")
    colour = terminal and not os.environ.get("NO_COLOR")
    width = shutil.get_terminal_size((120, 24)).columns
    print(*conclusion(directory, terminal=terminal, colour=colour, width=width), sep="\n")
    return Content.of(directory).status


if __name__ == "__main__":
    sys.exit(main())
