"""Paired benchmarks: is one side slower than another, on a machine that others use as well?"""
