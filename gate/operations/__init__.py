"""The table of operations: adding an operation is adding a row.

Everything else in the gate walks this table and knows no operation by name.
"""

from gate.operations.attending import ATTENDING
from gate.operations.exchanging import EXCHANGING
from gate.operations.learning import LEARNING
from gate.operations.moving import MOVING
from gate.operations.operation import Operation, Output, Outputs
from gate.operations.scoring import SCORING
from gate.operations.selecting import SELECTING

OPERATIONS: dict[str, Operation] = {
    row.name: row for row in (*SCORING, *SELECTING, *MOVING, *ATTENDING, *LEARNING, *EXCHANGING)
}

__all__ = ["OPERATIONS", "Operation", "Output", "Outputs"]
