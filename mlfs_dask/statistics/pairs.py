"""Information of every feature with some partners, other features, and with each of them and every label.

`PairInformation` counts a block of partners against all features in one pass and turns the counts into information
where the last merge ran. It is a `ContingencyCounts` of columns that are made of each block's rows: the codes of the
partners, the labels, and the products of both.
"""

from __future__ import annotations

import bisect
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp

from mlfs_dask.blocks import gates
from mlfs_dask.blocks.counts import BlockCoder, CodeBook, code_indicators, layout_counts, table_items
from mlfs_dask.blocks.entropy import count_log_count
from mlfs_dask.blocks.pair_scores import Counts
from mlfs_dask.blocks.pairs import (
    COUNTS_AT_ONCE,
    PairCounts,
    face_splitting_product,
    pair_terms,
    row_runs,
)
from mlfs_dask.blocks.sparse import columns_of_block
from mlfs_dask.blocks.unknown import no_labels, with_unknown_columns
from mlfs_dask.engine.plan import ReadingSizes, plan_reading, reading_fits
from mlfs_dask.engine.readings import reading_sizes
from mlfs_dask.engine.statistic import State
from mlfs_dask.rows.contract import Block, Profile, RowSource, profile_of, unknown_labels
from mlfs_dask.runtime import Resources
from mlfs_dask.statistics.counts import ContingencyCounts
from mlfs_dask.typing import Array

#: Most values of X in a run of rows, and most entries of the indicator columns that are counted at a time; bytes that
#: such an entry takes until it is counted.
COLUMN_ENTRIES = 2**19
COLUMN_ENTRY_BYTES = 64

#: Fraction of the driver's memory that what partners share with features may take.
PARTNERS_FRACTION = 0.25


@dataclass(frozen=True)
class PairInformation(ContingencyCounts):
    """Statistic: information of features first..last-1 with partners; made by `pair_information`.

    The result is (terms, entropy): terms, shape (2, c, w), hold I(f; s) of every feature f with every partner s, and
    the sum over the labels of the interaction information I(f; s; l) = I(f; s) - I(f; s | l); entropy, shape (w,), is
    that of the features. Without labels terms have shape (1, c, w). They rest on counts and are the same bits for any
    chunking, and for any other partners that are counted with s.

    Parameters
    ----------
    book, first, last, sparse, slot_of_label, n, compiled, weighted
        As of `ContingencyCounts`; its labels are the columns that are made here.
    partners : int64 array, shape (c,)
        Features.
    n_labels : int
        q, or 0 for I(f; s) alone.
    unknown_labels : int64 array, shape (u,), optional
        Labels whose interaction information is that of the rows where each is known.
    """

    partners: NDArray[np.int64] = field(kw_only=True)
    n_labels: int = 0
    unknown_labels: NDArray[np.int64] = field(default_factory=no_labels)

    kind = "pairs"

    @cached_property
    def partner_coder(self) -> BlockCoder:
        """Codes of the partners."""
        book = self.book.select(self.partners)
        return BlockCoder(book, layout_counts(book, 0, book.d, sparse=True))

    def _result_bytes(self, width: int) -> int:
        return 8 * (1 + (2 if self.n_labels else 1) * len(self.partners)) * width

    @property
    def has_log_table(self) -> bool:
        """True if compiled loops look up the logarithms of counts."""
        return self.compiled and self.n <= gates.LOG_ROWS

    @cached_property
    def logs(self) -> Array | None:
        """c log c for all counts c of rows."""
        return count_log_count(np.arange(self.n + 1)) if self.has_log_table else None

    @property
    def parameters(self) -> Mapping[str, Any]:
        unknown = {"unknown": self.unknown_labels} if len(self.unknown_labels) else {}
        return {**self._coding, "partners": self.partners, "n_labels": self.n_labels, **unknown}

    def result_among(self, results: Mapping[str, Any]) -> Any:
        result = super().result_among(results)
        if result is None and not self.n_labels:  # that of some partners is a part of that of all
            codes = np.arange((self.book.n_codes - 1).sum())
            whole = results.get(replace(self, partners=np.arange(self.book.d), slot_of_label=codes).result_key)
            result = None if whole is None else (whole[0][:, self.partners], whole[1])
        return result

    @property
    def result_parameters(self) -> Mapping[str, Any]:
        return {}

    def _add_bytes(self, profile: Profile, width: int, by_position: int) -> int:
        of_partners = min(profile.block_values, profile.block_rows * len(self.partners), COLUMN_ENTRIES)
        of_labels = profile.block_rows * profile.labels_of_row
        # NumPy's products are a table of their own, sparse and dense, before they are added.
        products = 0 if self.compiled else 24 * table_items(self.coder.layout, self.p)
        made = (40 + profile.itemsize) * of_partners + 20 * of_labels + COLUMN_ENTRY_BYTES * COLUMN_ENTRIES
        return super()._add_bytes(replace(profile, label_nonzeros=0), width, by_position) + made + products

    def _scratch_bytes(self, profile: Profile, width: int, by_position: int, n_codes: int) -> int:
        # Of one partner as `_finalize_bytes` says, or of so many that they have `COUNTS_AT_ONCE` counts.
        logs = 8 * 4 * int(self.n) * self.has_log_table  # and the temporaries in which they are made
        return super()._scratch_bytes(profile, width, by_position, n_codes) + 64 * COUNTS_AT_ONCE + logs

    def _finalize_bytes(self, n_codes: int) -> int:
        copied = n_codes * self.p * (len(self.unknown_labels) > 0)
        most_codes = int(self.partner_coder.book.n_codes.max(initial=1))  # that any partner has
        of_pairs = 8 * n_codes * (most_codes + 1) * (self.n_labels + 1)
        return 8 * ((n_codes + 2) * (self.p + 1) + of_pairs + copied)

    def add(self, state: State, block: Block) -> None:
        X, weights = block.X, block.weights
        Y = with_unknown_columns(block.Y, self.unknown_labels) if self.n_labels else block.Y
        values = np.diff(X.indptr) if sp.issparse(X) else np.full(X.shape[0], len(self.partners))
        for run in row_runs(values, COLUMN_ENTRIES):
            partners = code_indicators(self.partner_coder, columns_of_block(X[run], self.partners))
            labels = Y[run] if self.n_labels else sp.csr_array((partners.shape[0], 0), dtype=np.int8)
            of_partners, of_labels = (np.diff(matrix.indptr).astype(np.int64) for matrix in (partners, labels))
            for part in row_runs(of_partners + of_labels + of_partners * of_labels, COLUMN_ENTRIES):
                first, last = run.start + part.start, run.start + part.stop
                p, y = partners[part], labels[part]
                columns = sp.hstack([y, p, face_splitting_product(p, y)], format="csr", dtype=np.int8)
                own = None if weights is None else weights[first:last]
                super().add(state, Block(block.start + first, X[first:last], columns, own))

    def features_from_counts(self, counts: Counts) -> tuple[Array, Array]:
        """Terms, shape (2, c, w) or (1, c, w), and entropy."""
        unknown, q = self.unknown_labels, self.n_labels
        if not len(unknown):
            return self._terms(counts, np.arange(q))
        terms, entropy = self._terms(counts, np.setdiff1d(np.arange(q), unknown))
        together = np.zeros((2, *terms.shape[1:]))
        together[: len(terms)] = terms
        n_unknown = counts.positives[q : q + len(unknown), 0]
        for mark, label in enumerate(unknown.tolist(), start=q):
            if n_unknown[mark - q] < counts.n:
                together[1] += self._terms(counts, np.array([label]), mark)[0][1]
        return together, entropy

    def _terms(self, counts: Counts, labels: NDArray[np.int64], mark: int | None = None) -> tuple[Array, Array]:
        """`features_from_counts` of some labels, of all rows or of those that have not the label `mark`."""
        joint, marginal, positives, n = counts.joint, counts.marginal[:, 0], counts.positives[:, 0], counts.n
        q, m = self.n_labels + len(self.unknown_labels), int(self.partner_coder.layout.offset[-1])
        codes, width = joint.shape[0], joint.shape[2]
        of_codes, both = joint[:, q : q + m], joint[:, q + m :].reshape(codes, m, q, width)
        partner_codes, partner_both = positives[q : q + m], positives[q + m :].reshape(m, q)
        if mark is not None:
            marginal, n = marginal - joint[:, mark], n - positives[mark].item()
            of_codes, partner_codes = of_codes - both[:, :, mark], partner_codes - partner_both[:, mark]
        elif len(labels) == q:  # the counts themselves, without a copy
            labels = slice(None)  # type: ignore[assignment]
        of_partners = partner_codes, positives[:q][labels], partner_both[:, labels]
        pairs = PairCounts(marginal, of_codes, joint[:, :q][:, labels], both[:, :, labels], *of_partners)
        logs = self.logs if n <= self.n and self.finishes_compiled else None
        return pair_terms(pairs, self.partner_coder.layout.offset, n, logs)


def pair_information(
    source: RowSource | Profile,
    book: CodeBook,
    partners: NDArray[np.integer[Any]],
    *,
    with_labels: bool,
) -> PairInformation:
    """Return the statistic of all features with some partners.

    Parameters
    ----------
    source : RowSource or Profile
        The rows that are read, whose labels may be unknown; of a profile, rows whose labels are known.
    book : CodeBook
        Of all features.
    partners : int array, shape (c,)
        Features, in any order; every feature gives all d x d pairs.
    with_labels : bool
        Whether the interaction information with the labels is asked for: (q + 1) times the counts.

    Returns
    -------
    PairInformation
        A worker holds (c (codes - 1) (q + 1) + q) d (codes - 1) counts of 4 bytes with labels, c d (codes - 1)^2
        without; the result is 2 c d or c d numbers of 8 bytes.

    Examples
    --------
    >>> from mlfs_dask.blocks.codes import equal_width_book
    >>> from mlfs_dask.engine.readings import run_reading
    >>> from mlfs_dask.rows.sources import as_rows
    >>> X, Y = np.array([[0, 0], [0, 1], [1, 0], [1, 1]]), np.array([[0], [1], [1], [0]])
    >>> source = as_rows(X, Y)
    >>> book = equal_width_book(source.features, 2)
    >>> statistic = pair_information(source.profile, book, np.array([0]), with_labels=True)
    >>> ((terms, entropy),), _ = run_reading(source, [statistic], Resources(1, 1, 2**32, 2**32))
    >>> terms.round(3).tolist()  # the label is the exclusive or of two features: only together they tell it
    [[[0.693, 0.0]], [[0.0, -0.693]]]
    """
    profile, unknown = profile_of(source), unknown_labels(source)[: None if with_labels else 0]
    m = int((book.n_codes[partners] - 1).sum())
    q = profile.q if with_labels else 0
    columns = q + len(unknown)
    statistic = PairInformation(
        book=book,
        first=0,
        last=profile.d,
        sparse=profile.sparse,
        slot_of_label=np.arange(columns + m + m * columns),
        n=profile.total,
        weighted=profile.weight is not None,
        partners=partners.astype(np.int64),
        n_labels=q,
        unknown_labels=unknown,
    )
    # Columns that a row has: codes of partners, at most as many as values, labels, and both.
    labels = profile.label_nonzeros / max(profile.n, 1)
    codes = min(len(partners), profile.nonzeros / max(profile.n, 1))
    work = profile.nonzeros * (codes + (labels + codes * labels) * with_labels)
    items = table_items(statistic.coder.layout, statistic.p)
    tables = items * -(-profile.n // max(profile.block_rows, 1))
    large = work >= gates.COMPILED_ADDITIONS or tables >= gates.COMPILED_TABLES or items >= gates.COMPILED_ITEMS
    return replace(statistic, compiled=large and profile.weight is None)


def partners_that_fit(
    source: RowSource | Profile,
    resources: Resources,
    book: CodeBook,
    most: int,
    *,
    with_labels: bool,
) -> int:
    """Return the most partners, up to `most`, that one pass can count, whichever they are.

    Raises
    ------
    DoesNotFitError
        The table of a single partner does not fit.
    """
    profile = profile_of(source)

    def sizes(count: int) -> ReadingSizes:
        statistic = pair_information(source, book, book.widest(count), with_labels=with_labels)
        return reading_sizes(source, [statistic], resources)

    fitting = bisect.bisect_left(range(1, most + 1), True, key=lambda n: not reading_fits(profile, resources, sizes(n)))
    if not fitting:
        plan_reading(profile, resources, sizes(1))  # raises
    return fitting


def partners_of_a_reading(
    source: RowSource | Profile, resources: Resources, book: CodeBook, most: int, *, with_labels: bool
) -> int:
    """`partners_that_fit`, of so many as leave the driver room for what they share with features.

    Raises
    ------
    DoesNotFitError
        The table of a single partner does not fit.
    """
    room = int(resources.driver_limit * PARTNERS_FRACTION) // (8 * 5 * book.d)
    if resources.client is None:
        # The driver's share is of the same process.
        limit = resources.memory_limit - int(resources.memory_limit * PARTNERS_FRACTION)
        resources = replace(resources, memory_limit=limit)
    return partners_that_fit(source, resources, book, max(1, min(most, room)), with_labels=with_labels)
