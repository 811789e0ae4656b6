"""All planted faults of single operations, class by class, and what is planted elsewhere or not."""

from __future__ import annotations

from tests.faults import fp8_faults, tie_faults
from tests.faults.autograd_faults import AUTOGRAD
from tests.faults.chain_faults import CHAIN
from tests.faults.fault import Fault, Group
from tests.faults.gather_faults import GATHER
from tests.faults.gradient_faults import GRADIENTS
from tests.faults.loss_faults import LOSS
from tests.faults.mask_faults import MASKS
from tests.faults.overflow_faults import OVERFLOW
from tests.faults.scoring_faults import SCORING
from tests.faults.selection_faults import SELECTION
from tests.faults.stale_faults import STALE
from tests.faults.teacher_faults import TEACHER

GROUPS: tuple[Group, ...] = (
    SCORING,
    MASKS,
    SELECTION,
    CHAIN,
    GATHER,
    TEACHER,
    LOSS,
    GRADIENTS,
    AUTOGRAD,
    OVERFLOW,
    STALE,
)

# Their faults are planted in the groups above when these are imported.
MORE = (fp8_faults, tie_faults)

FAULTS: tuple[Fault, ...] = tuple(fault for group in GROUPS for fault in group)
