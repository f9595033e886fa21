"""Run folders, and what is made of them."""
