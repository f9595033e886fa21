"""`python -m mlfs_dask` is `mlfs`."""

from mlfs_dask_cli.main import main

if __name__ == "__main__":
    main()
