"""Faults of the field, planted: every one must be rejected for the right reason."""
