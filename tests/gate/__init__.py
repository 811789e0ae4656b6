"""Tests of the instrument: each mechanism of the gate is shown to work."""
