"""Compiled kernel of `blocks.pairs`, imported only for large jobs.

Sums run in NumPy's order, and logarithms come from a table made by NumPy, so that the bits are the same. It uses no
Python objects and releases the GIL.
"""

from __future__ import annotations

from mlfs_dask.blocks.compiling import njit


@njit()
def set_information(  # type: ignore[no-untyped-def]
    terms, some, ptr, alone, codes, logs, n, log_n, H_f, H_s, error
):  # pragma: no cover - compiled
    """Set I(f; s), 0 if it is at most `error`, in `terms` (partners, w), for a batch `some` of the partners in `ptr`.

    Parameters: counts as in `PairCounts`, int64; logs[c] = c log c for c up to n; log_n = log n; H_f (w,) and H_s
    (some,) are the entropies.
    """
    K, w = alone.shape
    for i in range(some.size):
        first, last = ptr[some[i]], ptr[some[i] + 1]
        for f in range(w):
            total = 0.0
            for v in range(K):
                # The remainder belongs to the partner's reference code.
                state = alone[v, f]
                for s in range(first, last):
                    state -= codes[v, s, f]
                of_code = logs[state]
                for s in range(first, last):
                    of_code += logs[codes[v, s, f]]
                total += of_code
            H_fs = log_n - total / n
            if H_fs <= error:
                H_fs = 0.0
            information = H_f[f] + H_s[i] - H_fs
            terms[some[i], f] = information if information > error else 0.0


@njit()
def add_interactions(  # type: ignore[no-untyped-def]
    terms, some, ptr, alone, codes, labels, both, logs, n, log_n, shared, H_l, H_fl, H_sl, error
):  # pragma: no cover - compiled
    """Add I(f; s; l) above `error` of all labels to `terms` (partners, w), for a batch `some` of the partners in `ptr`.

    Parameters: counts as in `PairCounts`, int64; logs[c] = c log c for c up to n; log_n = log n; shared (some, w) is
    I(f; s); H_l (q,), H_fl (q, w) and H_sl (some, q) are the entropies with labels.
    """
    K, q, w = labels.shape
    for i in range(some.size):
        first, last = ptr[some[i]], ptr[some[i] + 1]
        for label in range(q):
            for f in range(w):
                total = 0.0
                for v in range(K):
                    # The remainder belongs to the partner's reference code.
                    state, with_label = alone[v, f], labels[v, label, f]
                    for s in range(first, last):
                        state -= codes[v, s, f]
                        with_label -= both[v, s, label, f]
                    of_code = logs[with_label] + logs[state - with_label]
                    for s in range(first, last):
                        with_label = both[v, s, label, f]
                        of_code += logs[with_label] + logs[codes[v, s, f] - with_label]
                    total += of_code
                H_fsl = log_n - total / n
                interaction = shared[i, f] + H_l[label] - H_fl[label, f] - H_sl[i, label] + H_fsl
                if abs(interaction) > error:
                    terms[some[i], f] += interaction
