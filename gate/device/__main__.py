"""Run the gate, the peers and the ceilings on one device: `python -m gate.device --device cuda`.

Exit status: 0 all that was judged passed, 1 some of it failed or had to be ended, 2 there is no
such device, or nothing was measured.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from gate.device.jobs import CONTESTANTS, JUDGED
from gate.device.session import NOTHING, SECONDS, Session
from gate.device.table import page
from gate.report import clear
from gate.tensors import require_device


def main(arguments: list[str] | None = None) -> int:
    """Run the session that the options describe, and return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m gate.device", description=__doc__)
    parser.add_argument("--device", default="cuda", help="cuda, npu, ...; cpu is a small trial")
    parser.add_argument(
        "--report-dir", type=Path, default=Path("gate-report/device"), metavar="DIR"
    )
    parser.add_argument("--seconds", type=float, default=SECONDS, help="time of the whole run")
    parser.add_argument(
        "--backend", action="append", default=[], metavar="NAME", help="another one to take part"
    )
    options = parser.parse_args(arguments)
    try:
        require_device(options.device)
    except ValueError as error:
        print(f"no device, nothing measured: {error}", file=sys.stderr)
        return NOTHING
    directory: Path = options.report_dir.resolve()
    clear(directory)
    more = tuple(options.backend)
    session = Session(
        options.device,
        directory,
        options.seconds,
        small=options.device == "cpu",
        judged=(*JUDGED, *more),
        contestants=(*CONTESTANTS, *more),
    )
    status = session.run()
    text = page(session.found)
    (directory / "device.md").write_text(text, encoding="utf-8")
    print(text)
    return status


if __name__ == "__main__":
    sys.exit(main())
