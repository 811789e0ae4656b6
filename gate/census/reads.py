"""Reads from a device that run no operator, and which tensors are on the host anyway.

`tolist`, `numpy` and copies between host and device are seen as calls of torch's functions, and
nowhere else.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack

_ON_HOST = "_census_on_host"
READS: dict[Any, str] = {
    torch.Tensor.tolist: "Tensor.tolist",
    torch.Tensor.numpy: "Tensor.numpy",
    torch.Tensor.__array__: "Tensor.numpy",
    torch.Tensor.cpu: "Tensor.cpu",
}
LITERALS = (torch.tensor, torch.as_tensor)
MOVES = ("to", "cuda", "npu", "cpu")


def is_on_host(tensor: torch.Tensor) -> bool:
    """True for a tensor that the code under test knows to be in host memory."""
    return getattr(tensor, _ON_HOST, False)


def mark_on_host(result: object, on_host: bool = True) -> None:
    """Note of every tensor in a result whether it is in host memory."""
    for tensor in tensors_of(result):
        setattr(tensor, _ON_HOST, on_host)


def tensors_of(tree: object) -> Iterable[torch.Tensor]:
    """Yield the tensors of nested tuples, lists and mappings."""
    if isinstance(tree, torch.Tensor):
        yield tree
    elif isinstance(tree, Mapping):
        for value in tree.values():
            yield from tensors_of(value)
    elif isinstance(tree, (list, tuple)):
        for value in tree:
            yield from tensors_of(value)


Note = Callable[[str, torch.Tensor], None]


class Watch(TorchFunctionMode):
    """Tells `note` of every read and copy that runs no operator: its name and the tensor.

    With `device` "cpu" all tensors count as those of a device, else those that are on one.
    """

    def __init__(self, device: str, note: Note) -> None:
        super().__init__()
        self._all = device == "cpu"
        self._note = note

    def __torch_function__(
        self,
        func: Any,
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        given = dict(kwargs or {})
        name = getattr(func, "__name__", "")
        if func in READS and func is not torch.Tensor.cpu and self._is_far(args[0]):
            self._note(READS[func], args[0])
        result = func(*args, **given)
        if self._all or not isinstance(result, torch.Tensor):
            return result
        if name in MOVES:
            came, went = self._is_far(args[0]), self._is_far(result)
            if came and not went:
                self._note("Tensor.cpu", args[0])
            elif went and not came and not given.get("non_blocking", False):
                self._note("Tensor.to", args[0])
        elif func in LITERALS and self._is_far(result):
            self._note("torch.tensor", result)
        return result

    def _is_far(self, tensor: torch.Tensor) -> bool:
        return self._all or tensor.device.type != "cpu"


@contextlib.contextmanager
def kept_in_backward(mode: TorchFunctionMode) -> Iterator[None]:
    """Keep the mode on in backward passes, which torch starts with every such mode put aside."""
    name = "_engine_run_backward"
    run = getattr(torch.autograd, name, None)
    if run is None:
        yield
        return

    def run_in_mode(*args: Any, **kwargs: Any) -> Any:
        if mode in _get_current_function_mode_stack():  # type: ignore[no-untyped-call]
            return run(*args, **kwargs)
        with mode:
            return run(*args, **kwargs)

    setattr(torch.autograd, name, run_in_mode)
    try:
        yield
    finally:
        setattr(torch.autograd, name, run)
