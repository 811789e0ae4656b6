"""Checks of the suite itself and the gate that kernels are held to."""
