"""Connecting to Dask, which workers take part, and what is wrong with them."""
