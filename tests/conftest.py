"""Load the gate's plugin for every test of this tree."""

pytest_plugins = ["gate.plugin"]
