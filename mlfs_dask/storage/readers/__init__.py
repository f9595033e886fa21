"""One module for each input format; `detect.open_source` chooses among them, and imports only that one."""
