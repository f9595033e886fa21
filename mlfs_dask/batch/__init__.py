"""A whole grid from one file: stores × methods × parameters × k × seeds, selected and evaluated."""
