"""Tests of the accelerated implementations themselves, beside the gate that they pass."""
