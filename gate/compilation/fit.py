"""The verdict on one compilation: whether a block of the kernel fits the device as it should.

Each question has a code of its own. `shared_memory`, `registers`, `tensor_memory`: a launch that
asks for more than a block may have fails on the device, whatever the numbers are. `spill`: what
finds no register goes through memory, in the innermost loop. `scalar_products`: a product of narrow
types that the units for matrices do not make is right and many times slower. `double`: so is
arithmetic in 64 bits, which one constant of Python is enough for.
"""

from __future__ import annotations

from gate.compilation.binary import Resources
from gate.compilation.targets import Target
from gate.rules import Finding, Judgement

RULE = "resources"


def judge_fit(
    resources: Resources, target: Target, *, narrow: bool = False, double: bool = False
) -> Judgement:
    """Judge what a kernel takes by what the target admits.

    `narrow`: the kernel is given matrices of at most 16 bits a number, whose products the units for
    matrices are expected to make; `double`: it is given numbers of 64 bits. `closeness` is the
    largest share of a limit that is used.
    """
    held = resources.registers * resources.threads
    limits = [
        ("shared_memory", "bytes of shared memory a block", resources.shared, target.shared_memory),
        ("registers", "registers a thread", resources.registers, _steps(target)),
        ("registers", "registers a block", held, target.registers_per_block),
        ("tensor_memory", "columns a block", resources.tensor_memory, target.tensor_memory),
        ("spill", "bytes a thread in memory that found no register", resources.spilled, 0),
    ]
    findings = [
        Finding(
            reason,
            f"{target.name} ({target.device}): {got} {what}, {most} is the most",
            what,
            (),
            float(got),
            None,
            float(most),
        )
        for reason, what, got, most in limits
        if got > most
    ]
    if narrow and resources.dots and not resources.products:
        expected = " or ".join(target.products)
        words = f"{target.name} ({target.device}): no {expected}: numbers are multiplied one by one"
        findings.append(Finding("scalar_products", words))
    if resources.doubles and not double:
        words = f"{target.name} ({target.device}): {resources.doubles} instructions in 64 bits"
        findings.append(Finding("double", words))
    used = max(got / most for _, _, got, most in limits if most)
    source = f"resources: read from the binary, limits of {target.name} ({target.source})"
    return Judgement(RULE, source, tuple(findings), float("inf") if findings else used)


def _steps(target: Target) -> int:
    """The most registers a thread may have, in the steps of `Resources.registers`."""
    return -(-target.registers_per_thread // 8) * 8
