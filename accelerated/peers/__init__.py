"""Released implementations as backends of the gate, each importing its own package and no other.

A peer is called as its users call it, and what it returns is passed on as it is. Only conventions
that its documentation states are mapped to the contract's: layouts, the type of ids, the number of
slots. Arguments that a package has no way to express raise NotImplementedError with the reason.
"""
