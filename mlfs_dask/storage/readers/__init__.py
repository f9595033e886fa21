"""Readers of multi-label files: one module a format, behind `detect`, on three engines.

Tables of Arrow batches (`table`): CSV and TSV, Parquet and Feather; with features as rows (`transposed`).
Arrays (`matrix`): npz and npy, mat, mtx, AnnData, 10x and Zarr, whose elements `encoded` names.
Text (`tokens`, on blocks of whole `lines`): ARFF, and svmlight and XMLC (`indexed_text`).
"""
