"""Context parallelism: laws of its arithmetic, and what ranks do on real processes."""
