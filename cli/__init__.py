"""The `mlfs` command line: each command parses, calls one library function, prints."""
