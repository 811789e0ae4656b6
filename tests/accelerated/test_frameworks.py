"""The border between torch and other frameworks: what crosses it, and how.

Each framework in a process of its own, as its users have it, and only where it is installed.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.dlpack import from_dlpack

from accelerated.frameworks.bridge import Bridge
from tests.gate.end_to_end import run_gate

ROOT = Path(__file__).parents[2]
FRAMEWORKS = {"jax": "jax", "paddle": "paddlepaddle"}

TENSORS = """
def tensors():
    torch.manual_seed(0)
    x = torch.randn(4, 12)
    kinds = {"float32": x, "float16": x.half(), "bfloat16": x.bfloat16(),
             "e4m3": x.to(torch.float8_e4m3fn), "int32": (100 * x).int(), "bool": x > 0}
    layouts = {"transposed": x.t(), "gaps": x[:, ::2], "inside": x[:, 1:7],
               "expanded": x[:1].expand(4, 12), "zero size": x[:0], "scalar": x[0, 0].clone(),
               "one row": x.as_strided((1, 12), (99, 1)),
               "permuted": x.view(2, 2, 12).permute(2, 0, 1),
               "offset": torch.randn(25)[1:].view(4, 6), "gradient": x.clone().requires_grad_()}
    return {**kinds, **layouts}

def bits(tensor):
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)
"""

# What is learnt of one framework, in one process: its start costs more than all of it.
PROBE = f"""
import json, sys, threading
import torch
import accelerated.frameworks.{{name}}_backend as backend
{TENSORS}
bridge, learnt = backend.BRIDGE, {{}}
for name, tensor in tensors().items():
    back = bridge.give(bridge.take(tensor), tensor.device)
    reason = bridge.copy_reason(tensor)
    refused = False
    try:
        bridge.take(tensor, copy=False)
    except ValueError:
        refused = True
    learnt[name] = dict(
        same=torch.equal(bits(back), bits(tensor)) and back.shape == tensor.shape,
        type=back.dtype == tensor.dtype, device=back.device == tensor.device,
        grad=back.requires_grad, reason=reason or "", refused=refused,
        shared=back.data_ptr() == tensor.data_ptr(),
        copied=bridge.give(bridge.take(tensor, copy=True), tensor.device).data_ptr()
        != tensor.data_ptr(),
    )
wide = {{}}
for kind in (torch.int64, torch.float64):
    big = torch.tensor([2**40 + 1]).to(kind)
    try:
        back = bridge.give(bridge.take(big), big.device)
        wide[str(kind)] = "same" if torch.equal(back, big) and back.dtype == kind else "changed"
    except NotImplementedError as error:
        wide[str(kind)] = str(error)
provided = [n for n in dir(backend) if callable(getattr(backend, n)) and not n.startswith("_")]
print(json.dumps(dict(crossings=learnt, wide=wide, provided=provided, modules=sorted(
    each for each in ("jax", "paddle", "transformers") if each in sys.modules))))
"""


@pytest.fixture(scope="module", params=FRAMEWORKS)
def learnt(request: pytest.FixtureRequest) -> dict[str, Any]:
    name = request.param
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"{FRAMEWORKS[name]} is not installed (nox -s frameworks)")
    command = [sys.executable, "-W", "ignore", "-c", PROBE.replace("{name}", name)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = {"name": name, **json.loads(done.stdout.splitlines()[-1])}
    return found


def test_every_tensor_comes_back_bit_for_bit(learnt: dict[str, Any]) -> None:
    for name, found in learnt["crossings"].items():
        assert found["same"], name
        assert found["type"], name
        assert found["device"], name
        assert not found["grad"], name


def test_memory_is_shared_unless_a_reason_is_stated(learnt: dict[str, Any]) -> None:
    for name, found in learnt["crossings"].items():
        if name != "zero size":
            assert found["shared"] == (not found["reason"]), name
            assert found["copied"], name
        assert found["refused"] == bool(found["reason"]), name
    stated = {name for name, found in learnt["crossings"].items() if found["reason"]}
    expected = {"jax": {"gaps", "inside", "expanded", "offset"}, "paddle": set()}
    assert stated == expected[learnt["name"]]


def test_wide_types_are_never_cut_in_silence(learnt: dict[str, Any]) -> None:
    for outcome in learnt["wide"].values():
        if learnt["name"] == "jax":
            assert "cuts to 32 bits without a word" in outcome
        else:
            assert outcome == "same"


def test_a_process_holds_one_framework(learnt: dict[str, Any]) -> None:
    assert learnt["modules"] == [learnt["name"]]


def test_both_examples_provide_the_operations_they_are_examples_of(learnt: dict[str, Any]) -> None:
    assert {
        "indexer_scores", "indexer_scores_fp8", "select_topk", "indexer_topk", "gather_keys",
        "attention_target", "indexer_kl_loss", "sparse_attention", "dense_attention",
    } <= set(learnt["provided"])  # fmt: skip


@pytest.mark.slow
def test_both_examples_pass_the_gate(learnt: dict[str, Any], tmp_path: Path) -> None:
    # The whole of the profile is what `nox -s frameworks` runs.
    checks = ["-k", "three and match", "--check-timeout", "300"]
    run = run_gate(tmp_path, "--backend", learnt["name"], *checks)
    assert run.status == 0, run.output
    assert len(run.verdicts) >= 18
    assert {verdict.verdict for verdict in run.verdicts} == {"pass"}


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_a_missing_framework_is_reported_with_the_command_that_installs_it(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    module = f"accelerated.frameworks.{name}_backend"
    monkeypatch.delitem(sys.modules, module, raising=False)
    with pytest.raises(ImportError, match=f"pip install {FRAMEWORKS[name]}"):
        importlib.import_module(module)


# -- the base, with a framework that is torch itself -----------------------------------------------


class Plain(Bridge):
    framework = "plain"
    alignment = 64

    def __init__(self) -> None:
        self.refused = {torch.int64: "which would be cut"}
        self.waited: list[Tensor] = []

    def array(self, tensor: Tensor) -> Tensor:
        return from_dlpack(tensor)

    def wait(self, arrays: list[Tensor]) -> None:
        self.waited += arrays


def test_tensors_become_arrays_and_everything_else_stays_what_it_is() -> None:
    bridge, x = Plain(), torch.randn(3, 4)

    @bridge.operation
    def twice(x: Tensor, factor: float, *, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        assert mask is None
        return x * factor, x

    doubled, same = twice(x.clone().requires_grad_(), 2.0, mask=None)
    assert torch.equal(doubled, 2 * x)
    assert torch.equal(same, x)
    assert not doubled.requires_grad
    assert len(bridge.waited) == 2


def test_what_would_change_is_refused_with_the_reason() -> None:
    with pytest.raises(NotImplementedError, match=r"plain: got torch.int64, which would be cut"):
        Plain().take(torch.zeros(3, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"copy: got False, but plain sees no tensor of strides"):
        Plain().take(torch.zeros(3, 4)[:, 1:], copy=False)
    with pytest.raises(ValueError, match=r"copy: got False, but plain wants addresses that"):
        Plain().take(torch.zeros(9)[1:], copy=False)


def test_a_result_on_another_device_is_refused() -> None:
    with pytest.raises(TypeError, match="got a result on cpu, expected meta"):
        Plain().give(torch.zeros(3), torch.device("meta"))


def test_tensors_of_two_devices_are_no_call() -> None:
    function = Plain().operation(lambda a, b: a)
    with pytest.raises(ValueError, match=r"device: got .*cpu.*meta.*, expected one"):
        function(torch.zeros(2), torch.zeros(2, device="meta"))
