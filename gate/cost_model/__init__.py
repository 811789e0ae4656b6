"""A model, not a measurement: bytes and operations of stages times rates of a device.

For devices that are not at hand. docs/cost-model.md says where each rate is from and how far the
model is from what the field published.
"""

from gate.cost_model.figures import FACTOR, FIGURES, Figure
from gate.cost_model.rates import RATES, Rate
from gate.cost_model.stages import Stage, gather_price, seconds

__all__ = ["FACTOR", "FIGURES", "RATES", "Figure", "Rate", "Stage", "gather_price", "seconds"]
