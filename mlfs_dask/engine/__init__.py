"""Planning and running a pass over the rows, and what is kept of it: cache and checkpoints."""
