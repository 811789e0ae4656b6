"""The choice that Triton makes once and for all when it is first imported: compile or interpret.

Nothing here imports Triton, so that whoever may import it first can choose before.
"""

from __future__ import annotations

import os

import torch

VARIABLE = "TRITON_INTERPRET"


def interpret_without_accelerator() -> None:
    """Have Triton's interpreter run the kernels where no accelerator can, unless the user chose.

    Must come before the first import of triton in the process; child processes inherit the choice.
    """
    if not torch.cuda.is_available():
        os.environ.setdefault(VARIABLE, "1")
