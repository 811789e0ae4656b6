"""The compilation matrix: what is read from a binary, what is judged, and what it turns down."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gate.backends import wrap
from gate.compilation import TARGETS, Resources, compilations, judge_fit
from gate.compilation.binary import allocated
from gate.verdicts import Verdict, read
from tests.gate.planted_kernels import PLANTED

ROOT = Path(__file__).parents[2]
HOPPER, AMD = TARGETS["cuda:90"], TARGETS["hip:gfx942"]
FITS = Resources(
    registers=128, spilled=0, shared=65536, threads=256, dots=1, products=("mma.sync",)
)


def reasons(resources: Resources, target: Any = HOPPER, *, narrow: bool = True) -> list[str]:
    judgement = judge_fit(resources, target, narrow=narrow)
    return [finding.reason for finding in judgement.findings]


def changed(**parts: Any) -> Resources:
    return Resources(**{**vars(FITS), **parts})


@pytest.mark.parametrize("target", TARGETS.values(), ids=lambda target: target.name)
def test_what_is_within_every_limit_fits_every_target(target: Any) -> None:
    small = changed(registers=64, shared=16384)
    assert reasons(small, target) == []
    assert 0 < judge_fit(small, target).closeness <= 1


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ({"shared": HOPPER.shared_memory}, []),
        ({"shared": HOPPER.shared_memory + 1}, ["shared_memory"]),
        ({"registers": 256}, []),
        ({"registers": 264, "threads": 32}, ["registers"]),
        ({"registers": 256, "threads": 288}, ["registers"]),
        ({"spilled": 4}, ["spill"]),
        ({"tensor_memory": 1}, ["tensor_memory"]),
        ({"products": ()}, ["scalar_products"]),
        ({"doubles": 1}, ["double"]),
        ({"shared": 1 << 20, "spilled": 8}, ["shared_memory", "spill"]),
    ],
)
def test_each_limit_is_judged_by_a_code_of_its_own(
    parts: dict[str, Any], expected: list[str]
) -> None:
    assert reasons(changed(**parts)) == expected


def test_no_unit_for_matrices_is_needed_for_wide_numbers_or_where_no_matrix_is_multiplied() -> None:
    assert reasons(changed(products=()), narrow=False) == []
    assert reasons(changed(products=(), dots=0)) == []


def test_amd_devices_share_their_registers_among_the_warps_of_a_block() -> None:
    assert reasons(changed(registers=512, threads=256, shared=0), AMD) == []
    assert reasons(changed(registers=264, threads=512, shared=0), AMD) == ["registers"]


def test_a_target_is_a_row_of_data_with_the_source_of_its_limits() -> None:
    assert {"cuda:80", "cuda:90", "cuda:100", "hip:gfx942"} <= set(TARGETS)
    for name, target in TARGETS.items():
        assert target.name == name
        assert target.name == f"{target.backend}:{target.arch}"
        assert target.products
        assert target.source


def test_a_report_of_cuobjdump_without_a_count_is_refused() -> None:
    line = " Function f:\n  REG:{0} STACK:8 SHARED:1024 LOCAL:4 CONSTANT[0]:904 TEXTURE:0"
    found = allocated(line.format(40))
    assert found == {"REG": 40, "STACK": 8, "SHARED": 1024, "LOCAL": 4}
    with pytest.raises(ValueError, match="no LOCAL"):
        allocated("REG:40 STACK:0 SHARED:0")


def test_a_backend_without_a_catalogue_has_nothing_to_compile() -> None:
    assert not list(compilations(wrap(SimpleNamespace(), "none"), HOPPER))


def compiled(directory: Path, *options: str, **variables: str) -> tuple[int, list[Verdict]]:
    """Run the matrix on the planted kernels as a user does; return exit status and verdicts."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/compilation"]
    backend = ["--backend", "tests/gate/planted_kernels.py", "--report-dir", str(directory)]
    run = subprocess.run(
        [*command, *backend, "-n1", *options],
        cwd=ROOT,
        env=os.environ | variables,
        capture_output=True,
        text=True,
        check=False,
    )
    return run.returncode, list(read(directory))


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> tuple[int, dict[tuple[str, str], Verdict]]:
    directory = tmp_path_factory.mktemp("planted")
    cache = str(tmp_path_factory.mktemp("cache"))
    status, verdicts = compiled(
        directory, "-k", "planted", TRITON_INTERPRET="0", TRITON_CACHE_DIR=cache
    )
    return status, {(v.device, v.case.split(",")[0]): v for v in verdicts}


@pytest.mark.parametrize("kernel", PLANTED)
def test_planted_kernels_are_turned_down_for_the_right_reason(
    planted: tuple[int, dict[tuple[str, str], Verdict]], kernel: str
) -> None:
    status, verdicts = planted
    verdict, expected = verdicts["cuda:90", kernel], PLANTED[kernel][1]
    assert status == 1
    assert (verdict.reason, verdict.rule) == (expected, "resources"), verdict.message
    assert verdict.verdict == ("fail" if expected else "pass")


def test_binaries_of_amd_devices_are_read_as_well(
    planted: tuple[int, dict[tuple[str, str], Verdict]],
) -> None:
    _, verdicts = planted
    healthy = verdicts["hip:gfx942", "fits"]
    assert healthy.verdict == "pass", healthy.message
    assert healthy.details["products"] == ["v_mfma"]
    assert healthy.details["registers"] > 0
    assert verdicts["hip:gfx942", "huge"].reason == "shared_memory"


def test_interpreted_kernels_are_skipped_with_the_reason_and_nothing_was_checked(
    tmp_path: Path,
) -> None:
    status, verdicts = compiled(tmp_path, "-k", "fits", TRITON_INTERPRET="1")
    assert status == 2
    assert {(v.verdict, v.reason) for v in verdicts} == {("skip", "not_supported")}
    assert all("nox -s compile" in v.message for v in verdicts)
