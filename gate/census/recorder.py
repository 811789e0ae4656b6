"""Recording a call: every operator that it dispatches, forward and backward."""

from __future__ import annotations

import contextlib
import functools
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from gate.census.observed import Census, Op, Operand
from gate.census.places import innermost
from gate.census.reads import Watch, is_on_host, kept_in_backward, mark_on_host, tensors_of
from gate.census.stand_in import StandIn

_INDEXED = ("aten::index", "aten::index_put", "aten::_index_put_impl", "aten::_unsafe_index")


def record(fn: Callable[[], object], *, stand_in: str = "", device: str = "cpu") -> Census:
    """Call `fn` and return every operator that it and its backward passes dispatch.

    `fn` takes no argument; its tensors are on `device`. `stand_in` may name another type of device:
    the code is told that they are there, so that it takes the path that it would take there. What
    runs inside a kernel that is no operator of torch is not seen, only counted. Exceptions of `fn`
    pass through.
    """
    kind = device.split(":")[0]
    census = Census(f"{stand_in}, stand-in" if stand_in else kind)

    def note(name: str, tensor: torch.Tensor) -> None:
        place, backward = innermost()
        if place is not None and not census.paused:
            operand = Operand.of(tensor)
            census.ops.append(Op(name, (operand,), (operand,), place, backward=backward))

    watch = StandIn(stand_in, device, note) if stand_in else Watch(kind, note)
    with contextlib.ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        stack.enter_context(_triton_launches(census))
        # Nodes of the graph remember the line that made them.
        stack.enter_context(torch.autograd.detect_anomaly(check_nan=False))
        stack.enter_context(kept_in_backward(watch))
        stack.enter_context(watch)
        stack.enter_context(_Operators(census, on_device=not stand_in and kind != "cpu"))
        fn()
    return census


class _Operators(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self, census: Census, *, on_device: bool) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._census = census
        self._on_device = on_device

    def _is_on_host(self, tensor: torch.Tensor) -> bool:
        return tensor.device.type == "cpu" if self._on_device else is_on_host(tensor)

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        given = kwargs or {}
        if self._census.paused:
            return func(*args, **given)
        taken = list(tensors_of((args, given)))
        before = {_storage(tensor) for tensor in taken}
        operands = tuple(Operand.of(tensor) for tensor in taken)
        name = _name_of(func)
        indices = _index_operands(args) if name in _INDEXED else ()
        result = func(*args, **given)
        returned = list(tensors_of(result))
        if taken and all(self._is_on_host(tensor) for tensor in taken):
            mark_on_host(result)
            return result
        place, backward = innermost()
        if place is None:
            return result
        if func.namespace not in ("aten", "prim", "prims"):
            self._census.count_opaque(str(func))
        made = tuple(Operand.of(tensor) for tensor in returned if _storage(tensor) not in before)
        self._census.ops.append(
            Op(
                name,
                operands,
                tuple(Operand.of(tensor) for tensor in returned),
                place,
                made=made,
                indices=indices,
                view=_is_view(func),
                backward=backward,
            )
        )
        return result


def _name_of(func: Any) -> str:
    name = str(func._schema.name)
    return name.removesuffix("_") if func._schema.is_mutable else name


def _is_view(func: Any) -> bool:
    returns = func._schema.returns
    aliases = bool(returns) and all(each.alias_info is not None for each in returns)
    return aliases and not func._schema.is_mutable


def _index_operands(args: tuple[Any, ...]) -> tuple[Operand | None, ...]:
    return tuple(None if each is None else Operand.of(each) for each in args[1])


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata if tensor.layout is torch.strided else id(tensor)


@contextlib.contextmanager
def _triton_launches(census: Census) -> Iterator[None]:
    """Count launches of Triton kernels, compiled and interpreted, while the context lasts."""
    found = [
        (sys.modules.get("triton.runtime.jit"), "JITFunction", "run"),
        (sys.modules.get("triton.runtime.interpreter"), "GridExecutor", "__call__"),
    ]
    with contextlib.ExitStack() as stack:
        for module, owner, method in found:
            kind = getattr(module, owner, None)
            launch = getattr(kind, method, None)
            if kind is None or launch is None:
                continue
            stack.callback(setattr, kind, method, launch)
            setattr(kind, method, _counted(launch, census))
        yield


def _counted(launch: Callable[..., Any], census: Census) -> Callable[..., Any]:
    @functools.wraps(launch)
    def counted(kernel: Any, *args: Any, **kwargs: Any) -> Any:
        fn = getattr(kernel, "fn", kernel)
        census.count_opaque(f"triton:{getattr(fn, '__name__', 'kernel')}")
        outer, census.paused = census.paused, True
        try:
            return launch(kernel, *args, **kwargs)
        finally:
            census.paused = outer

    return counted
