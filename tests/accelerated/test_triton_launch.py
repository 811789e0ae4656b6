"""Where kernels run: the choice comes before triton, and what cannot be is said in words."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

import accelerated.triton_backend as backend
from accelerated.triton_backend import launch
from accelerated.triton_backend.tuning import Choice
from tests.accelerated.test_torch_forward_bad_arguments import (
    ARGUMENTS,
    BAD_VALUES,
    WRONG_TYPES,
    good_arguments,
)

without_accelerator = pytest.mark.skipif(
    torch.cuda.is_available(), reason="kernels are compiled on this machine"
)


def ran(program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    inherited = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        capture_output=True,
        text=True,
        check=False,
        env=inherited | environment,
    )


@without_accelerator
def test_without_an_accelerator_kernels_are_interpreted_and_the_name_says_so() -> None:
    program = "import accelerated.triton_backend as b; print(b.name, b.devices)"
    assert ran(program).stdout == "triton (interpreter) ('cpu',)\n"


@without_accelerator
def test_the_choice_of_the_user_stands() -> None:
    program = """if True:
        import accelerated.triton_backend as b
        from accelerated.triton_backend.launch import target
        print(b.name, b.devices, target())
    """
    assert ran(program, TRITON_INTERPRET="0").stdout == "triton ('cuda',) cuda\n"


@without_accelerator
def test_triton_imported_too_early_is_an_import_error_that_names_the_variable() -> None:
    run = ran("import triton; import accelerated.triton_backend")
    assert run.returncode == 1
    assert "ImportError: triton was imported before TRITON_INTERPRET" in run.stderr


def test_missing_triton_is_an_import_error_with_the_command() -> None:
    run = ran("import sys; sys.modules['triton'] = None; import accelerated.triton_backend")
    assert "ImportError: the Triton backend needs triton: pip install triton" in run.stderr


@pytest.mark.parametrize("grid", [(2**31,), (1, 65536), (1, 1, 65536)])
def test_a_grid_longer_than_devices_admit_is_refused(grid: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="grid: got"):
        launch.launch(None, grid, Choice({}))


def test_a_launch_leaves_the_language_as_it_was() -> None:
    import triton.language as tl

    before = {name: getattr(tl, name) for name in ("load", "store", "dot", "arange")}
    backend.gather_keys(torch.zeros(1, 2, 3), torch.zeros(1, 1, 1, dtype=torch.int32))
    assert before == {name: getattr(tl, name) for name in before}


@pytest.mark.parametrize(("argument", "value", "message"), [*BAD_VALUES, *WRONG_TYPES])
def test_bad_arguments_are_refused_by_name(argument: str, value: object, message: str) -> None:
    takers = [name for name, arguments in ARGUMENTS.items() if argument in arguments.split()]
    assert takers
    for operation in takers:
        with pytest.raises((ValueError, TypeError)) as raised:
            getattr(backend, operation)(**good_arguments(operation) | {argument: value})
        assert message in str(raised.value), operation
