"""`python -m gate.cost_model` prints the tables of docs/cost-model.md."""

from __future__ import annotations

from gate.cost_model.figures import FIGURES, slowest_over_mean
from gate.cost_model.rates import RATES


def tables() -> str:
    """Return the rates, and what the model predicts beside what was published, as Markdown."""
    lines = ["| engine | a second | of what | source |", "|---|---|---|---|"]
    for name, rate in RATES.items():
        lines.append(f"| {name} | {rate.per_second:.3g} | {rate.unit} | {rate.source} |")
    lines += ["", "| figure | published, ms | model, ms | factor | |", "|---|---|---|---|---|"]
    for figure in FIGURES:
        role = "fitted" if figure.fitted else "predicted"
        lines.append(
            f"| {figure.name} | {1e3 * figure.published:.4g} | {1e3 * figure.predicted:.4g} "
            f"| {figure.miss:.2f} | {role} |"
        )
    lines += ["", "| figure | published | model |", "|---|---|---|"]
    lines.append(f"| slowest over mean, 16 ranks at 256k | 1.94 | {slowest_over_mean():.4g} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(tables())
