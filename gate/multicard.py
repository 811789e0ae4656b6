"""The checks of context parallelism on ranks that torchrun started, one an accelerator.

    torchrun --nproc-per-node 8 -m gate.multicard --device cuda --backend NAME

Rank 0 is the run of the gate, with its options and its report; all other ranks follow its jobs.
What needs more ranks than there are is skipped with that reason.
"""

from __future__ import annotations

import argparse
import sys

import pytest

from gate.ranks import AttachedRanks, attach

PART = "tests/cp"


def main(arguments: list[str]) -> int:
    """Run as one rank; the exit status of rank 0 is that of the gate."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--device", default="cpu")
    known, _ = parser.parse_known_args(arguments)
    ranks = AttachedRanks(known.device)
    if ranks.rank:
        ranks.follow()
        return 0
    attach(ranks)
    try:
        return int(pytest.main([PART, "-n0", *arguments]))
    finally:
        ranks.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
