"""The gate's checks of time and memory; nothing else may share the machine with them."""
