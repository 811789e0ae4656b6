"""Profiles: how much a run of the gate tries.  Each holds everything the one before it holds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Profile:
    """`seeds` numbers a scene, `examples` drawn scenes an operation, `timeout` seconds a check."""

    name: str
    seeds: int
    examples: int
    timeout: float


PROFILES: dict[str, Profile] = {
    row.name: row
    for row in (
        Profile("smoke", seeds=1, examples=12, timeout=60.0),
        Profile("pr", seeds=3, examples=60, timeout=180.0),
        Profile("nightly", seeds=10, examples=600, timeout=1800.0),
    )
}


def profile_named(name: str) -> Profile:
    """Return the profile called `name`; ValueError lists the ones there are."""
    if name not in PROFILES:
        raise ValueError(f"--profile: got {name!r}, expected one of {', '.join(PROFILES)}")
    return PROFILES[name]
