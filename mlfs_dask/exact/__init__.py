"""Parts of forms with all rows in memory: rows as a matrix, graphs of all rows, the loop of a published program."""
