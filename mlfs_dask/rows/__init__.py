"""Rows of X and Y, wherever they lie: sources, and views of them."""
