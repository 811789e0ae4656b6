"""Count false alarms: the property checks of the smoke profile on a healthy backend, seed by seed.

`python -m tests.gate.false_alarms torch 200` tries 200 seeds and prints the count; exit status 1 if
any check failed.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import torch

from gate.backends import load
from gate.check import Failed, Skipped, drawn_checks
from gate.profiles import PROFILES


def main(spec: str, seeds: range) -> int:
    """Try every seed, print each failure as it happens and the count at the end."""
    torch.set_num_threads(1)
    backend, examples = load(spec), PROFILES["smoke"].examples
    checks = alarms = skipped = 0
    with tempfile.TemporaryDirectory() as directory:
        for seed in seeds:
            for check in drawn_checks(backend, seed, examples, "cpu", Path(directory)):
                checks += 1
                try:
                    check.hold()
                except Skipped:
                    skipped += 1
                except Failed as failed:
                    alarms += 1
                    print(failed, flush=True)
            if (seed - seeds.start) % 10 == 9:
                print(f"seed {seed}: {checks} checks, {alarms} alarms", flush=True)
    print(
        f"{spec}: {len(seeds)} seeds, {checks} checks of {examples} scenes each, "
        f"{skipped} skipped, {alarms} alarms"
    )
    return 1 if alarms else 0


if __name__ == "__main__":
    first, *rest = map(int, sys.argv[2:])
    sys.exit(main(sys.argv[1], range(first, *rest) if rest else range(first)))
