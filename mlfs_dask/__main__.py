"""`python -m mlfs_dask` is `mlfs`."""

from mlfs_dask_cli import start

if __name__ == "__main__":
    start()
