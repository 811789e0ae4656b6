"""Implementations of the specification that are held to the reference, never the other way."""
