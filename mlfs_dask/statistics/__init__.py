"""Reductions over the rows, a file each: zero, add, merge, finalize, over kernels of `blocks`."""
