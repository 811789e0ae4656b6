"""How a process ended, in the words of a failure message."""

from __future__ import annotations

import signal


def how_it_ended(code: int) -> str:
    """Name the signal (negative codes, as `subprocess` gives them) or the exit status."""
    if code >= 0:
        return f"exit status {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:  # a real-time signal has a number and no name
        return f"signal {-code}"
