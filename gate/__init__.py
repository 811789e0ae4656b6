"""The instrument: cases, rules, bounds, verdicts, and the pytest plugin that applies them."""
