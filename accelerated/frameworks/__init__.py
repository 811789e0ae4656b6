"""Kernels of other frameworks as backends of the gate, through DLPack.

`bridge` is the border: tensors of torch on one side, arrays of a framework on the other, on one
device and in one memory. `jax_backend` and `paddle_backend` are worked examples, written as users
of those frameworks write; a kernel of one's own takes their place. Each module imports its own
framework and no other, so that torch and one framework are all that a process holds.
"""
