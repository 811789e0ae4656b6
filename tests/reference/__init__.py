"""Checks of the reference against golden vectors, laws, gradients and real activations."""
