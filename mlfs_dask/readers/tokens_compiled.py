"""Compiled tokenizers: bytes of whole lines to numbers, for ARFF, dense and sparse, and for svmlight and XMLC text.

A kernel does the common case and sets aside what is not: every token that it cannot finish (a quoted value,
an undeclared category, a date, text where a number should be) goes with its place into `deferred`, and Python
resolves or refuses it. Only the structure of a line (ragged, unclosed, an index out of range) stops a kernel;
it then says at which byte. So the kernels know no messages, and an error can name line, column and value.

All kernels write into arrays given by the caller and stop, with `FULL`, before the line that does not fit.
They rely on a newline at `buffer[stop - 1]`.
"""

from __future__ import annotations

import numpy as np

from mlfs_dask.blocks.compiling import njit
from mlfs_dask.readers import tokens
from mlfs_dask.readers.label_values import MINUS_ONE, UNKNOWN
from mlfs_dask.readers.parse_float import read_number

KNOWN, LOOK_UP, DEFER = range(3)

_TAB, _NEWLINE, _RETURN, _BLANK, _QUOTE, _HASH, _PERCENT, _APOSTROPHE = 9, 10, 13, 32, 34, 35, 37, 39
_COMMA, _COLON, _QUESTION, _BACKSLASH, _OPEN, _CLOSE = 44, 58, 63, 92, 123, 125


@njit()
def _code_of(buffer, start, stop, declaration, nominals):  # type: ignore[no-untyped-def]
    """Return the code of the value `buffer[start:stop]`, quotes apart; -1 if it is not declared or has escapes."""
    quote = buffer[start]
    if quote in (_APOSTROPHE, _QUOTE):
        start += 1
        stop -= 1
        if stop < start or buffer[stop] != quote:
            return np.int32(-1)
        for p in range(start, stop):
            if buffer[p] == _BACKSLASH:
                return np.int32(-1)
    if stop - start == 1:
        return nominals.single[declaration, buffer[start]]
    hashed = np.int64(2166136261)
    for p in range(start, stop):
        hashed = ((hashed ^ np.int64(buffer[p])) * 16777619) & 0xFFFFFFFF
    mask = nominals.mask[declaration]
    first = nominals.first[declaration]
    place = hashed & mask
    while True:
        value = nominals.slots[first + place]
        if value < 0:
            return np.int32(-1)
        begin = nominals.bounds[value]
        if nominals.bounds[value + 1] - begin == stop - start:
            same = True
            for i in range(stop - start):
                if nominals.text[begin + i] != buffer[start + i]:
                    same = False
                    break
            if same:
                return nominals.codes[value]
        place = (place + 1) & mask


@njit()
def _after_blanks(buffer, p):  # type: ignore[no-untyped-def]
    while buffer[p] == _BLANK or buffer[p] == _TAB or buffer[p] == _RETURN:
        p += 1
    return p


@njit()
def _next_line(buffer, p):  # type: ignore[no-untyped-def]
    while buffer[p] != _NEWLINE:
        p += 1
    return p + 1


@njit()
def _ends_value(c):  # type: ignore[no-untyped-def]
    return c in (_COMMA, _BLANK, _NEWLINE, _CLOSE, _RETURN, _TAB)


@njit()
def _value_end(buffer, p):  # type: ignore[no-untyped-def]
    """End of the ARFF value at p, quotes included; where a quote is not closed, the end of the line."""
    quote = buffer[p]
    if quote != _APOSTROPHE and quote != _QUOTE:
        while not _ends_value(buffer[p]):
            p += 1
        return p
    p += 1
    while buffer[p] != _NEWLINE:
        if buffer[p] == quote:
            return p + 1
        if buffer[p] == _BACKSLASH and buffer[p + 1] != _NEWLINE:
            p += 1
        p += 1
    return p


# The look-up among long values stays outside: passing `nominals` costs more than reading a number.
@njit()
def _value_of(buffer, p, kind, declaration, single):  # type: ignore[no-untyped-def]
    """(what, value, end) of the ARFF value at p: KNOWN (NaN for `?`), LOOK_UP among nominals, or DEFER."""
    c = buffer[p]
    if kind == tokens.NUMERIC:
        exact, value, end = read_number(buffer, p)
        if exact and _ends_value(buffer[end]):
            return KNOWN, value, end
    if _ends_value(buffer[p + 1]):
        if c == _QUESTION:  # also where a nominal declares '?', whose values are quoted
            return KNOWN, np.nan, p + 1
        if kind == tokens.NOMINAL:
            code = single[declaration, c]
            if code >= 0:
                return KNOWN, np.float64(code), p + 1
    end = _value_end(buffer, p)
    return (LOOK_UP if kind == tokens.NOMINAL else DEFER), 0.0, end


@njit()
def _label_of(value, kind):  # type: ignore[no-untyped-def]
    """Return the int8 label of a value or a code: 1, 0, `UNKNOWN` for NaN, `MINUS_ONE`; 2 where it is none of them."""
    if value != value or (kind == tokens.NOMINAL and value == tokens.UNKNOWN_CODE):
        return np.int8(UNKNOWN)
    if value == 0.0:
        return np.int8(0)
    if value == -1.0 or (kind == tokens.NOMINAL and value == tokens.MINUS_ONE_CODE):
        return np.int8(MINUS_ONE)
    return np.int8(1) if value == 1.0 else np.int8(2)


@njit()
def _after_row(buffer, p):  # type: ignore[no-untyped-def]
    """(whether only a weight and a comment follow, next line or offending byte, weights seen)."""
    p = _after_blanks(buffer, p)
    weights = 0
    if buffer[p] == _COMMA:
        p = _after_blanks(buffer, p + 1)
        if buffer[p] != _OPEN:
            return False, p, weights
    if buffer[p] == _OPEN:
        weights = 1
        while buffer[p] != _CLOSE:
            if buffer[p] == _NEWLINE:
                return False, p, weights
            p += 1
        p = _after_blanks(buffer, p + 1)
    if buffer[p] == _NEWLINE or buffer[p] == _PERCENT:
        return True, _next_line(buffer, p), weights
    return False, p, weights


@njit()
def _read_index(buffer, p):  # type: ignore[no-untyped-def]
    """(index, end) of the digits at p; -1 where there are none or they pass 31 bits."""
    index = np.int64(0)
    start = p
    while np.uint8(buffer[p] - 48) <= 9:
        if index < (1 << 40):
            index = index * 10 + np.int64(np.uint8(buffer[p] - 48))
        p += 1
    if p == start or index >= (1 << 31) - 1:
        index = np.int64(-1)
    return index, p


@njit()
def arff_rows(  # type: ignore[no-untyped-def]
    buffer, start, stop, sparse, width, kinds, declared, targets, nominals,
    bounds, features, values, label_bounds, labels, label_values, row_starts, deferred, report,
):  # fmt: skip
    """Rows `value,value,...` or, if `sparse`, `{index value, index value, ...}` of the lines in `buffer[start:stop]`.

    Parameters
    ----------
    buffer : uint8 array
    start, stop : int
    sparse : bool
    width : int
        Features of a row, and behind them codes of classes.
    kinds : uint8 array, shape (attributes,)
    declared : int32 array, shape (attributes,)
        Number of a nominal attribute's declaration.
    targets : int32 array, shape (attributes,)
    nominals : Nominals
    bounds, features, values : int64, int32 and float64 arrays
        CSR arrays of the features: every entry is written, zeros too, in the order of the file; `report[UNSORTED]`
        tells whether some row has an index that is not above the one before. Of dense rows `values` are all, row
        after row, and the others are not written.
    label_bounds, labels, label_values : int64, int32 and int8 arrays
        CSR arrays of the labels: 1, `UNKNOWN`, `MINUS_ONE`, or 2 where Python must look at the value; 0 in sparse rows
        alone.
    row_starts : int64 array, shape (capacity + 1,)
        Byte at which each row begins.
    deferred : int64 array, shape (capacity, 4)
    report : int64 array
    """
    n_attributes = len(kinds)
    single = nominals.single
    rows = entries = n_labels = n_deferred = lines = weights = unsorted = 0
    attribute = -1
    status = tokens.DONE
    p = start
    bounds[0] = label_bounds[0] = 0
    while p < stop:
        line_start, row_entries, row_labels, row_deferred = p, entries, n_labels, n_deferred
        p = _after_blanks(buffer, p)
        if buffer[p] == _NEWLINE or buffer[p] == _PERCENT:
            p = _next_line(buffer, p)
            lines += 1
            continue
        attribute = -1
        closed = False
        if rows == len(row_starts) - 1:
            status = tokens.FULL
        elif (buffer[p] == _OPEN) != sparse:
            status = tokens.NOT_A_ROW
        elif sparse:
            p = _after_blanks(buffer, p + 1)
            closed = buffer[p] == _CLOSE
        while status == tokens.DONE and not closed:
            if sparse:
                index, end = _read_index(buffer, p)
                if index < 0 or index >= n_attributes:
                    status = tokens.BAD_INDEX
                    break
                if index <= attribute:
                    unsorted = 1
                attribute = index
                p = _after_blanks(buffer, end)
                c = buffer[p]
                if p == end or c in (_COMMA, _CLOSE, _NEWLINE):
                    status = tokens.EMPTY_VALUE
                    break
            else:
                attribute += 1
                c = buffer[p]
                if c in (_COMMA, _NEWLINE, _PERCENT):
                    status = tokens.EMPTY_VALUE if c == _COMMA else tokens.TOO_FEW
                    break
            kind, declaration, target = kinds[attribute], declared[attribute], targets[attribute]
            what, value, end = _value_of(buffer, p, kind, declaration, single)
            if what == LOOK_UP:
                code = _code_of(buffer, p, end, declaration, nominals)
                if code >= 0:
                    what, value = KNOWN, np.float64(code)
            known = what == KNOWN
            place = np.int64(rows) * width + target
            if target >= 0:
                if sparse:
                    if entries == len(values):
                        status = tokens.FULL
                        break
                    features[entries] = target
                    place = np.int64(entries)
                    entries += 1
                values[place] = value
            elif target != tokens.IGNORED:
                label = _label_of(value, kind) if known else np.int8(2)
                if label != 0 or sparse:
                    if n_labels == len(labels):
                        status = tokens.FULL
                        break
                    labels[n_labels] = -1 - target
                    label_values[n_labels] = label
                    n_labels += 1
                    known = label != 2
                    place = np.int64(-n_labels)
            if not known and target != tokens.IGNORED:
                if n_deferred == len(deferred):
                    status = tokens.FULL
                    break
                deferred[n_deferred, tokens.FROM] = p
                deferred[n_deferred, tokens.TO] = end
                deferred[n_deferred, tokens.ATTRIBUTE] = attribute
                deferred[n_deferred, tokens.PLACE] = place
                n_deferred += 1
            p = end
            if sparse:
                p = _after_blanks(buffer, p)
                closed = buffer[p] == _CLOSE
                if buffer[p] == _COMMA:
                    p = _after_blanks(buffer, p + 1)
                elif not closed:
                    status = tokens.NOT_CLOSED
            elif attribute + 1 == n_attributes:
                closed = True
            else:
                if buffer[p] != _COMMA:
                    p = _after_blanks(buffer, p)
                if buffer[p] == _COMMA:
                    p = _after_blanks(buffer, p + 1)
                    if buffer[p] == _NEWLINE:
                        attribute += 1
                        status = tokens.EMPTY_VALUE
                elif p == end and buffer[p] != _NEWLINE:
                    status = tokens.NOT_CLOSED  # something sticks to a closing quote
        if status == tokens.DONE:
            fine, p, weight = _after_row(buffer, p + 1 if sparse else p)
            weights += weight
            if not fine:
                status = tokens.TOO_MANY
        if status != tokens.DONE:
            if status == tokens.FULL:
                p = line_start
                entries, n_labels, n_deferred = row_entries, row_labels, row_deferred
            break
        row_starts[rows] = line_start
        rows += 1
        lines += 1
        bounds[rows] = entries
        label_bounds[rows] = n_labels
    report[tokens.STATUS], report[tokens.POSITION] = status, p
    report[tokens.ROWS], report[tokens.ENTRIES] = rows, entries
    report[tokens.LABELS], report[tokens.DEFERRED], report[tokens.LINES] = n_labels, n_deferred, lines
    report[tokens.UNSORTED], report[tokens.COUNT] = unsorted, attribute
    report[tokens.WEIGHTS] += weights


@njit()
def _ends_word(c):  # type: ignore[no-untyped-def]
    return c in (_BLANK, _NEWLINE, _TAB, _RETURN, _HASH)


@njit()
def _word_end(buffer, p):  # type: ignore[no-untyped-def]
    while not _ends_word(buffer[p]):
        p += 1
    return p


@njit()
def svmlight_rows(  # type: ignore[no-untyped-def]
    buffer, start, stop, feature_base, n_features, n_labels, every_line,
    bounds, features, values, label_bounds, labels, label_values, classes, row_starts, deferred, report,
):  # fmt: skip
    """Rows `label,label index:value index:value ... # comment` of the lines in `buffer[start:stop]`.

    A line that begins with a blank, or whose first word holds a colon, has no labels. Blanks may stand around the
    commas between labels. A line with nothing on it, or nothing but a comment, is no row. `qid:7` is passed over.

    Parameters
    ----------
    feature_base : int
        Index in the file of the first feature.
    n_features, n_labels : int
        Bounds on the indices; 2^31 where they are not known.
    every_line : bool
        Whether every line is a row, also one with nothing on it.
    classes : float64 array
        Of the length of `row_starts`: the number that is the first word of a row, its class, NaN where there is none;
        or empty: then that word is labels.
    Others as in `arff_rows`.
    """
    rows = entries = n_label_entries = n_deferred = lines = unsorted = 0
    status = tokens.DONE
    p = start
    bounds[0] = label_bounds[0] = 0
    while p < stop:
        line_start = p
        row_entries, row_labels, row_deferred = entries, n_label_entries, n_deferred
        blank_first = buffer[p] == _BLANK or buffer[p] == _TAB
        p = _after_blanks(buffer, p)
        if not every_line and (buffer[p] == _HASH or (buffer[p] == _NEWLINE and not blank_first)):
            p = _next_line(buffer, p)
            lines += 1
            continue
        if rows < len(classes):
            classes[rows] = np.nan
        digit = np.uint8(buffer[p] - 48) <= 9
        _, end = _read_index(buffer, p) if digit else (np.int64(-1), p)
        if rows == len(row_starts) - 1:
            status = tokens.FULL
        elif blank_first or buffer[p] == _NEWLINE or (digit and buffer[end] == _COLON):
            pass
        elif len(classes):
            if buffer[p] != 113:  # q of qid
                exact, value, end = read_number(buffer, p)
                if exact and _ends_word(buffer[end]):
                    classes[rows] = value
                    p = end
                else:
                    status = tokens.BAD_LABEL
        elif digit:
            last = -1
            while True:
                label, end = _read_index(buffer, p)
                if label < 0 or label >= n_labels:
                    status = tokens.BAD_LABEL
                    break
                if n_label_entries == len(labels):
                    status = tokens.FULL
                    break
                labels[n_label_entries] = label
                label_values[n_label_entries] = 1
                n_label_entries += 1
                if label <= last:
                    unsorted |= 2
                last = label
                p = end
                after = _after_blanks(buffer, p)
                if buffer[after] != _COMMA:
                    break
                p = _after_blanks(buffer, after + 1)
            if status == tokens.DONE and not _ends_word(buffer[p]):
                status = tokens.BAD_LABEL
        elif buffer[p] != 113:
            status = tokens.BAD_LABEL
        last = -1
        while status == tokens.DONE:
            p = _after_blanks(buffer, p)
            c = buffer[p]
            if c in (_NEWLINE, _HASH):
                break
            if c == 113 and buffer[p + 1] == 105 and buffer[p + 2] == 100 and buffer[p + 3] == _COLON:
                p = _word_end(buffer, p)
                continue
            index, end = _read_index(buffer, p)
            index -= feature_base
            if buffer[end] != _COLON or index < 0 or index >= n_features:
                status = tokens.BAD_INDEX
                break
            if index <= last:
                unsorted |= 1
            last = index
            p = end + 1
            exact, value, end = read_number(buffer, p)
            known = exact and _ends_word(buffer[end])
            if entries == len(values):
                status = tokens.FULL
                break
            features[entries] = index
            values[entries] = value
            if not known:
                end = _word_end(buffer, p)
                if n_deferred == len(deferred):
                    status = tokens.FULL
                    break
                deferred[n_deferred, tokens.FROM] = p
                deferred[n_deferred, tokens.TO] = end
                deferred[n_deferred, tokens.ATTRIBUTE] = index
                deferred[n_deferred, tokens.PLACE] = entries
                n_deferred += 1
            entries += 1
            p = end
        if status != tokens.DONE:
            if status == tokens.FULL:
                p = line_start
                entries, n_label_entries, n_deferred = row_entries, row_labels, row_deferred
            break
        p = _next_line(buffer, p)
        row_starts[rows] = line_start
        rows += 1
        lines += 1
        bounds[rows] = entries
        label_bounds[rows] = n_label_entries
    report[tokens.STATUS], report[tokens.POSITION] = status, p
    report[tokens.ROWS], report[tokens.ENTRIES] = rows, entries
    report[tokens.LABELS], report[tokens.DEFERRED], report[tokens.LINES] = n_label_entries, n_deferred, lines
    report[tokens.UNSORTED], report[tokens.COUNT] = unsorted, 0
