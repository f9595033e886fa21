"""Formats of multi-label files: one module a format, which all are found by their `FORMATS`.

A new format is one module here: a function that opens a file as a `readers.base.Reader`, and the `readers.base.Format`
that names it and recognises its files. Three engines in `readers` read them: tables of Arrow batches (`table`),
matrices that are stored as arrays (`matrix`), and lines of text that a compiled kernel reads (`text`).
"""
