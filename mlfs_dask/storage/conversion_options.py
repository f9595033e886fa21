"""The options of a conversion."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from mlfs_dask.errors import UsageError
from mlfs_dask.readers.base import FileSpec
from mlfs_dask.storage.chunking import PARTITION_BYTES
from mlfs_dask.storage.schema import COMPRESSORS, DTYPES, STORAGES


@dataclass(frozen=True)
class Options:
    """Options of a conversion that shape its result; a resumed one must have the same."""

    file: FileSpec = field(default_factory=FileSpec)
    dtype: str | None = None
    storage: str = "auto"
    compressor: str = "none"
    partition_bytes: int = PARTITION_BYTES

    @property
    def record(self) -> dict[str, Any]:
        """The options as plain data, those of the file among them."""
        own = {name: getattr(self, name) for name in ("dtype", "storage", "compressor", "partition_bytes")}
        return {**self.file.record, **own}

    def check(self) -> None:
        """Raise UsageError for a value that cannot be."""
        _ = self.file.labels.values
        for name, value, known in (
            ("storage", self.storage, ("auto", *STORAGES)),
            ("compressor", self.compressor, COMPRESSORS),
            ("dtype", self.dtype, (None, *DTYPES)),
        ):
            if value not in known:
                choices = ", ".join(str(choice) for choice in known if choice)
                raise UsageError(f"{name} must be one of {choices}, not {value!r}")
        if self.file.obs and self.file.transpose:
            raise UsageError("--obs does not go with --transpose, since rows are then columns of the file")
        for name in self.file.obs:
            if "/" in name or name in ("", ".", "..", "_index"):
                raise UsageError(f"{name!r} cannot be the name of a column of a store\n  cure: rename it in the source")
        if len(set(self.file.obs)) < len(self.file.obs):
            raise UsageError("--obs names a column twice\n  cure: name each column once")
        if self.partition_bytes < 1:
            raise UsageError(f"partition_bytes must be positive, not {self.partition_bytes}")
