"""The Triton backend refuses what the torch backend refuses, in the same words."""

from __future__ import annotations

import pytest

import accelerated.triton_backend as backend
from tests.accelerated import test_torch_training_bad_arguments as refusals
from tests.accelerated.test_torch_training_bad_arguments import *  # noqa: F403


@pytest.fixture(autouse=True)
def _of_the_triton_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    for call, (function, arguments) in list(refusals.CALLS.items()):
        own = getattr(backend, function.__name__)
        monkeypatch.setitem(refusals.CALLS, call, (own, arguments))
