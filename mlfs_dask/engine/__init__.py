"""Planning and running a reading of the rows, and what is kept of it: cache and checkpoints."""
