"""Plain timings are kept with the report, and those who want them elsewhere say so."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Have pytest-benchmark write `benchmark.json` beside the verdicts."""
    if config.getoption("benchmark_json") is None:
        directory = Path(config.getoption("--report-dir")).resolve()
        config.option.benchmark_json = directory / "benchmark.json"
