"""Statistics of a conversion: ranges, whole numbers, missing values, label counts.

The statistics of two runs of rows merge exactly (sums, minima, maxima, ands), so that any split of the rows
into batches and parts gives the same storage form, the same types and the same recorded ranges.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from mlfs_dask.errors import DataError
from mlfs_dask.readers.label_values import MINUS_ONE, UNKNOWN, MinusOne

_TILE_BYTES = 1 << 18
"""Rows are looked at in tiles that stay in a core's cache through the dozen passes made over each."""

_TILE_ROWS = 255
"""Counts of a tile's rows fit a byte, which adds up many columns at a time."""

_NARROW = 64
"""Columns below which a tile is turned: a reduction over rows this short does little more than begin and end."""

_LONG_ROW = 256
"""Columns from which on counting row by row is faster than along the axis."""

_COLUMNS = ("minimum", "maximum", "stored", "missing", "integers")
_LABEL_COUNTS = ("positive", "unknown", "minus_ones")

Fault = Literal["missing", "fraction", "below", "above"]


class NotHeld(NamedTuple):
    """Reason why a type cannot hold a feature; `value` is a value out of range, if that is the reason."""

    fault: Fault
    feature: int
    value: float | None


def limits_of(dtype: str) -> tuple[float, float]:
    """Return the smallest and the largest finite value of a type."""
    limits = np.finfo(dtype) if np.dtype(dtype).kind == "f" else np.iinfo(dtype)
    return float(limits.min), float(limits.max)


class Statistics:
    """Counts over some rows of X and Y; widths grow with what is seen.

    Attributes
    ----------
    rows, nonzeros, label_nonzeros, longest_row : int
        Nonzeros count missing values; `longest_row` is the most nonzeros in one row.
    minimum, maximum : float64 array, shape (d,)
        Over values that are not missing; zeros may or may not be counted (see `ranges`). inf and -inf where
        there is none.
    stored, missing : int64 array, shape (d,)
        Values that are neither 0 nor missing, and values that are missing.
    integers : bool array, shape (d,)
        Every value present is a whole number.
    fits_float32 : bool
        Every value present is exactly a float32.
    positive, unknown, minus_ones : int64 array, shape (q,)
        Entries of each label; `minus_ones` are -1 in the source, until `settle_minus_one` has counted them as unknown
        or negative.
    seen : dict of int to bool array, shape (K,)
        Categorical feature -> which codes occur.
    """

    def __init__(self, categories: Mapping[int, int] | None = None) -> None:
        self.rows = 0
        self.nonzeros = 0
        self.label_nonzeros = 0
        self.longest_row = 0
        self.fits_float32 = True
        self.minimum: NDArray[np.float64] = np.empty(0)
        self.maximum: NDArray[np.float64] = np.empty(0)
        self.stored: NDArray[np.int64] = np.empty(0, np.int64)
        self.missing: NDArray[np.int64] = np.empty(0, np.int64)
        self.integers: NDArray[np.bool_] = np.empty(0, np.bool_)
        self.positive: NDArray[np.int64] = np.empty(0, np.int64)
        self.unknown: NDArray[np.int64] = np.empty(0, np.int64)
        self.minus_ones: NDArray[np.int64] = np.empty(0, np.int64)
        self.seen = {feature: np.zeros(size, np.bool_) for feature, size in (categories or {}).items()}

    @property
    def n_features(self) -> int:
        return len(self.minimum)

    @property
    def n_labels(self) -> int:
        return len(self.positive)

    def grow(self, n_features: int, n_labels: int) -> None:
        """Widen to at least these widths; new columns hold nothing but zeros."""
        more = n_features - self.n_features
        if more > 0:
            self.minimum = np.concatenate([self.minimum, np.full(more, np.inf)])
            self.maximum = np.concatenate([self.maximum, np.full(more, -np.inf)])
            self.stored = np.concatenate([self.stored, np.zeros(more, np.int64)])
            self.missing = np.concatenate([self.missing, np.zeros(more, np.int64)])
            self.integers = np.concatenate([self.integers, np.ones(more, np.bool_)])
        more = n_labels - self.n_labels
        if more > 0:
            for name in _LABEL_COUNTS:
                setattr(self, name, np.concatenate([getattr(self, name), np.zeros(more, np.int64)]))

    def add_dense(self, X: NDArray[np.floating[Any]], *, tidy: bool = False) -> None:
        """Count a dense block of X, shape (rows, d); NaN is missing, inf is the caller's to refuse.

        With `tidy` X is changed in place as it passes: -0 becomes 0, and every NaN the same one.
        """
        rows, d = X.shape
        self.grow(d, 0)
        self.rows += rows
        step = max(1, _TILE_BYTES // max(1, d * X.itemsize))
        if d >= _NARROW:
            step = min(step, _TILE_ROWS)
        for start in range(0, rows, step):
            tile = X[start : start + step]
            if tidy:
                tile += 0.0
            holes = self._add_tile(tile) if d >= _NARROW else self._add_turned(np.ascontiguousarray(tile.T))
            if holes and tidy:
                tile[np.isnan(tile)] = np.nan
        for feature, seen in self.seen.items():
            _mark(seen, X[:, feature], feature)

    def _add_tile(self, X: NDArray[np.floating[Any]]) -> bool:
        d = X.shape[1]
        present = (X != 0).view(np.uint8)
        in_column = np.add.reduce(present, axis=0, dtype=np.uint8).astype(np.int64)
        if self.longest_row < d:
            if d >= _LONG_ROW:
                longest = max(int(np.count_nonzero(row)) for row in present)
            else:
                longest = int(np.count_nonzero(present, axis=1).max())
            self.longest_row = max(self.longest_row, longest)
        return self._add_columns(X, in_column, axis=0)

    def _add_turned(self, columns: NDArray[np.floating[Any]]) -> bool:
        """Count a tile that is given column by column, shape (d, rows)."""
        present = (columns != 0).view(np.uint8)
        if self.longest_row < len(columns):
            in_row = np.add.reduce(present, axis=0, dtype=np.uint8)
            self.longest_row = max(self.longest_row, int(in_row.max(initial=0)))
        in_column = np.array([np.count_nonzero(column) for column in present], np.int64)
        return self._add_columns(columns, in_column, axis=1)

    def _add_columns(self, X: NDArray[np.floating[Any]], in_column: NDArray[np.int64], *, axis: int) -> bool:
        """Count a tile of which `axis` runs along the rows; returns whether values are missing."""
        d = len(in_column)
        self.nonzeros += int(in_column.sum())
        low, high = X.min(axis=axis), X.max(axis=axis)
        # NaN spreads through min: one look at d numbers tells whether the tile has missing values.
        holes = bool(np.isnan(low).any())
        if holes:
            missing = np.isnan(X).sum(axis=axis, dtype=np.int64)
            self.missing[:d] += missing
            in_column -= missing
            low, high = np.fmin.reduce(X, axis=axis), np.fmax.reduce(X, axis=axis)
            low[np.isnan(low)], high[np.isnan(high)] = np.inf, -np.inf
        self.stored[:d] += in_column
        np.minimum(self.minimum[:d], low, out=self.minimum[:d])
        np.maximum(self.maximum[:d], high, out=self.maximum[:d])
        # Most numeric columns show a fraction in the first tile and are never looked at again.
        candidates = np.flatnonzero(self.integers[:d])
        if candidates.size:
            part = X if candidates.size == d else X.take(candidates, axis=1 - axis)
            whole = part == np.rint(part)
            if holes:
                whole |= np.isnan(part)
            self.integers[candidates] = whole.all(axis=axis)
        if self.fits_float32 and not (self.integers[:d].all() and _are_small(low, high)):
            self.fits_float32 = _is_float32(X)
        return holes

    def add_sparse(self, X: csr_array) -> None:
        """Count a canonical sparse block of X, shape (rows, d), without explicit zeros."""
        rows, d = X.shape
        self.grow(d, 0)
        self.rows += rows
        self.nonzeros += X.nnz
        if rows:
            self.longest_row = max(self.longest_row, int(np.diff(X.indptr).max()))
        if X.nnz:
            self._add_values(X)
        if self.seen and rows:
            self._mark_sparse(X)

    def _mark_sparse(self, X: csr_array) -> None:
        columns = X.tocsc()
        for feature, seen in self.seen.items():
            start, stop = columns.indptr[feature : feature + 2] if feature < X.shape[1] else (0, 0)
            _mark(seen, columns.data[start:stop], feature)
            seen[0] |= stop - start < X.shape[0]

    def _add_values(self, X: csr_array) -> None:
        values, indices, indptr, d = X.data, X.indices, X.indptr, X.shape[1]
        if values.min() == 1 == values.max():  # 0/1 data, the common case; False when there are NaN
            counts = np.bincount(indices, minlength=d)
            occurs = counts > 0
            self.stored[:d] += counts
            self.minimum[:d][occurs] = np.minimum(self.minimum[:d][occurs], 1.0)
            self.maximum[:d][occurs] = np.maximum(self.maximum[:d][occurs], 1.0)
            return
        holes = np.isnan(values)
        if holes.any():
            self.missing[:d] += np.bincount(indices[holes], minlength=d)
            kept = np.concatenate([[0], np.cumsum(~holes)])
            values, indices, indptr = values[~holes], indices[~holes], kept[indptr]
        # Column order in linear time; only the columns that occur are looked at.
        columns = csr_array((values, indices, indptr), shape=X.shape).tocsc()
        occurring = np.flatnonzero(np.diff(columns.indptr))
        if not occurring.size:
            return
        values, starts = columns.data, columns.indptr[occurring]
        self.stored[occurring] += np.diff(starts, append=len(values))
        low, high = np.minimum.reduceat(values, starts), np.maximum.reduceat(values, starts)
        self.minimum[occurring] = np.minimum(self.minimum[occurring], low)
        self.maximum[occurring] = np.maximum(self.maximum[occurring], high)
        self.integers[occurring] &= np.logical_and.reduceat(values == np.rint(values), starts)
        if self.fits_float32:
            self.fits_float32 = _is_float32(values)

    def add_labels(self, Y: csr_array) -> None:
        """Count a canonical block of Y with entries 1, `UNKNOWN` and `MINUS_ONE`."""
        q = Y.shape[1]
        self.grow(0, q)
        self.label_nonzeros += Y.nnz
        positive = Y.data == 1
        self.positive[:q] += np.bincount(Y.indices[positive], minlength=q)
        if not positive.all():
            for counts, value in ((self.unknown, UNKNOWN), (self.minus_ones, MINUS_ONE)):
                counts[:q] += np.bincount(Y.indices[Y.data == value], minlength=q)

    def settle_minus_one(self, meaning: MinusOne | None = None) -> MinusOne:
        """Count each -1 of the source as unknown or as negative; all rows have to be counted.

        Parameters
        ----------
        meaning : {"unknown", "negative"}, optional
            By default -1 and 1 without any 0 are negative and positive, and -1 beside 0 is unknown.
        """
        no_zero = self.label_nonzeros == self.rows * self.n_labels
        meaning = meaning or ("negative" if no_zero and self.positive.any() else "unknown")
        if meaning == "unknown":
            self.unknown += self.minus_ones
        else:
            self.label_nonzeros -= int(self.minus_ones.sum())
        self.minus_ones[:] = 0
        return meaning

    def merge(self, other: Statistics) -> None:
        """Add the counts of other rows, in place."""
        self.grow(other.n_features, other.n_labels)
        self.rows += other.rows
        self.nonzeros += other.nonzeros
        self.label_nonzeros += other.label_nonzeros
        self.longest_row = max(self.longest_row, other.longest_row)
        self.fits_float32 &= other.fits_float32
        d, q = other.n_features, other.n_labels
        np.minimum(self.minimum[:d], other.minimum, out=self.minimum[:d])
        np.maximum(self.maximum[:d], other.maximum, out=self.maximum[:d])
        self.stored[:d] += other.stored
        self.missing[:d] += other.missing
        self.integers[:d] &= other.integers
        for name in _LABEL_COUNTS:
            getattr(self, name)[:q] += getattr(other, name)
        for feature, seen in other.seen.items():
            self.seen[feature] = self.seen[feature] | seen

    def narrowest_dtype(self) -> str:
        """Return the narrowest stored type that holds every value counted so far without loss."""
        low, high = self.minimum.min(initial=0), self.maximum.max(initial=0)
        if self.integers.all() and not self.missing.any():
            for dtype in ("uint8", "int16", "int32"):
                lowest, highest = limits_of(dtype)
                if lowest <= low and high <= highest:
                    return dtype
        return "float32" if self.fits_float32 else "float64"

    def sizes(self) -> dict[str, Any]:
        """Return the arguments of `chunk_store` that rows decide."""
        return {
            "n": self.rows,
            "d": self.n_features,
            "q": self.n_labels,
            "nonzeros": self.nonzeros,
            "label_nonzeros": self.label_nonzeros,
            "longest_row": self.longest_row,
        }

    def ranges(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the smallest and largest value of each feature, zeros included; NaN where every value is missing."""
        zeros = self.rows - self.stored - self.missing > 0
        minimum = np.where(zeros, np.minimum(self.minimum, 0.0), self.minimum)
        maximum = np.where(zeros, np.maximum(self.maximum, 0.0), self.maximum)
        empty = ~zeros & (self.stored == 0)
        minimum[empty] = maximum[empty] = np.nan
        return minimum, maximum

    def first_not_held(self, dtype: str) -> NotHeld | None:
        """Return the first feature with a value that a stored type cannot hold, even if digits may be lost."""
        type_of_x = np.dtype(dtype)
        low, high = self.ranges()
        faults: list[tuple[Fault, NDArray[np.bool_]]] = []
        if type_of_x.kind != "f":
            faults = [("missing", self.missing > 0), ("fraction", ~self.integers)]
        lowest, highest = limits_of(dtype)
        faults += [("below", low < lowest), ("above", high > highest)]  # comparisons with NaN are false
        for fault, wrong in faults:
            if wrong.any():
                feature = int(np.flatnonzero(wrong)[0])
                value = {"below": low, "above": high}.get(fault)
                return NotHeld(fault, feature, None if value is None else float(value[feature]))
        return None

    def save(self, path: Path) -> None:
        """Write to a file; only the columns that occur, which are few when d is large."""
        occurs = np.flatnonzero((self.stored > 0) | (self.missing > 0))
        arrays: dict[str, Any] = {
            "scalars": np.array(
                [self.rows, self.nonzeros, self.label_nonzeros, self.longest_row, self.n_features], np.int64
            ),
            "fits_float32": np.array(self.fits_float32),
            "occurs": occurs,
        }
        arrays |= {name: getattr(self, name) for name in _LABEL_COUNTS}
        arrays |= {name: getattr(self, name)[occurs] for name in _COLUMNS}
        arrays |= {f"seen-{feature}": codes for feature, codes in self.seen.items()}
        with path.open("wb") as file:
            np.savez(file, **arrays)

    @classmethod
    def load(cls, path: Path) -> Statistics:
        """Read what `save` wrote."""
        self = cls()
        try:
            archive = np.load(path)
        except zipfile.BadZipFile as error:
            if isinstance(error.__context__, OSError):  # the file was not read, whatever it holds
                raise error.__context__ from None
            raise
        with archive as file:
            rows, nonzeros, label_nonzeros, longest_row, d = (int(v) for v in file["scalars"])
            self.rows, self.nonzeros, self.label_nonzeros = rows, nonzeros, label_nonzeros
            self.longest_row = longest_row
            self.fits_float32 = bool(file["fits_float32"])
            self.grow(d, len(file["positive"]))
            occurs = file["occurs"]
            for name in _COLUMNS:
                getattr(self, name)[occurs] = file[name]
            for name in _LABEL_COUNTS:
                setattr(self, name, file[name])
            self.seen = {int(key.removeprefix("seen-")): file[key] for key in file if key.startswith("seen-")}
        return self


def _is_float32(values: NDArray[np.floating[Any]]) -> bool:
    # A value beyond float32 becomes inf, and differs; NaN differs from itself and must not count.
    with np.errstate(over="ignore", invalid="ignore"):
        narrow = values.astype(np.float32)
    return bool(((narrow == values) | (values != values)).all())


def _are_small(low: NDArray[np.floating[Any]], high: NDArray[np.floating[Any]]) -> bool:
    """Return True if float32 holds every whole number between two bounds exactly."""
    present = high >= low
    return bool((np.maximum(-low, high)[present] <= 2**24).all())


def _mark(seen: NDArray[np.bool_], values: NDArray[np.floating[Any]], feature: int) -> None:
    codes = values[~np.isnan(values)].astype(np.int64)
    if codes.size and not 0 <= int(codes.min()) <= int(codes.max()) < len(seen):
        raise DataError(
            f"a categorical feature with {len(seen)} declared values has code "
            f"{int(codes.max() if codes.min() >= 0 else codes.min())}",
            column=feature + 1,
            cure="declare every value of the feature",
        )
    seen[codes] = True
