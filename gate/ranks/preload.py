"""Imported once, before ranks are forked: what every rank would otherwise import by itself."""

import torch

import accelerated.context_parallel
import gate.operations
import gate.ranks.process
from gate.ranks.spy import Spy

# The first operator that a dispatch mode sees imports a thousand modules.
with Spy():
    torch.zeros(1)

__all__ = ["accelerated", "gate"]
