"""Publications of one shape, written one after the other as MessagePack: their values into a matrix.

Whoever looks at every name, type and value by itself meets each Python object several times, and most of the
time waits for its memory. An encoder in C meets them once; names and types are then told by bytes.
"""

# mypy: allow-untyped-defs, allow-untyped-calls, no-check-untyped-defs
from __future__ import annotations

import numpy as np

from homing.push.index.kernels.jit import direct, kernel

# What is to become of an attribute's value.
(IGNORED, NUMBER, BOOLEAN, TEXT) = range(4)
# Where a row of `attributes` tells the end of its name, what it is and its column.
(NAME_END, KIND, COLUMN) = range(3)
# Cells for texts that came already, and how many are looked at: a text that is not found there only
# counts as another one.
CELLS = 4096
TRIES = 8
# Numbers below this are far from infinite, NaN and beyond 2^53.
SAFE = 2.0**52

FLOAT64, FALSE, TRUE, NIL = 0xCB, 0xC2, 0xC3, 0xC0
U1, U8 = np.uint64(1), np.uint64(8)
SEED, PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)


@kernel()
def big_endian(packed, at, size):
    """A number of so many bytes."""
    number = np.uint64(0)
    for i in range(at, at + np.uint64(size)):
        number = number << U8 | np.uint64(packed[i])
    return number


@kernel()
def whole(packed, at):
    """An integer as a float, and where it ends; 0: there is none."""
    tag = np.int64(packed[at])
    if tag < 0x80:
        return np.float64(tag), at + U1
    if tag >= 0xE0:
        return np.float64(tag - 256), at + U1
    if 0xCC <= tag <= 0xCF:
        size = 1 << (tag - 0xCC)
        return np.float64(big_endian(packed, at + U1, size)), at + U1 + np.uint64(size)
    if 0xD0 <= tag <= 0xD3:
        size = 1 << (tag - 0xD0)
        unused = np.int64(64 - 8 * size)
        number = np.int64(big_endian(packed, at + U1, size)) << unused >> unused
        return np.float64(number), at + U1 + np.uint64(size)
    return 0.0, np.uint64(0)


@kernel()
def text_begin(packed, at):
    """Where a text's bytes begin and end; 0, 0: there is none."""
    tag = np.int64(packed[at])
    if 0xA0 <= tag <= 0xBF:
        return at + U1, at + U1 + np.uint64(tag - 0xA0)
    if 0xD9 <= tag <= 0xDB:
        size = 1 << (tag - 0xD9)
        begin = at + U1 + np.uint64(size)
        return begin, begin + big_endian(packed, at + U1, size)
    return np.uint64(0), np.uint64(0)


@kernel()
def ignored(packed, at):
    """Where a value that nobody asks for ends; 0: it is of no kind that publications have."""
    tag = np.int64(packed[at])
    if tag == FLOAT64:
        return at + np.uint64(9)
    if tag in (TRUE, FALSE, NIL):
        return at + U1
    _, end = text_begin(packed, at)
    if end == 0:
        _, end = whole(packed, at)
    return end


@kernel()
def same_bytes(packed, begin, end, other):
    """Whether the bytes from `begin` to `end` come again from `other` on."""
    at = begin
    while at < end and packed[at] == packed[other + (at - begin)]:
        at += U1
    return at == end


@kernel()
def numbered(packed, begin, end, cells, spans, count):
    """The number of a text among those that came so far, of which there are `count`."""
    mixed = SEED
    for i in range(begin, end):
        mixed = (mixed ^ np.uint64(packed[i])) * PRIME
    mixed ^= mixed >> np.uint64(32)
    for step in range(TRIES):
        cell = (mixed + np.uint64(step)) & np.uint64(CELLS - 1)
        known = np.uint64(cells[cell])
        if known == 0:
            cells[cell] = count + 1
            break
        known -= U1
        first = np.uint64(spans[known, 0])
        if np.uint64(spans[known, 1]) - first == end - begin and same_bytes(
            packed, begin, end, first
        ):
            return np.int64(known)
    spans[count, 0], spans[count, 1] = begin, end
    return count


@direct
@kernel("i8(u1[::1],i8,u1[::1],i4[:,::1],f8[:,::1],i4[:,::1],i8[:,::1])", nogil=False)
def unpack(packed, begin, names, attributes, matrix, texts, spans):
    """Each publication's values, to their columns of the matrix; returns how many texts there are, or -1.

    What is packed has a publication for each row of the matrix, from `begin` on. A publication is the bytes
    of `names` up to the end of each attribute's name, each followed by a value. A text's number goes to
    `texts` instead; `spans` tells from where to where it is, and which of `texts` was the first of its kind.
    -1: some are of another shape.
    """
    at = np.uint64(begin)
    words = matrix.view(np.uint64)
    cells = np.zeros(CELLS, np.int32)
    count = 0
    for row in range(matrix.shape[0]):
        name = np.uint64(0)
        for k in range(attributes.shape[0]):
            end = np.uint64(attributes[k, NAME_END])
            if at + (end - name) >= np.uint64(packed.size):
                return -1
            while name < end:
                if packed[at] != names[name]:
                    return -1
                at, name = at + U1, name + U1
            kind, column = attributes[k, KIND], attributes[k, COLUMN]
            tag = packed[at]
            if kind == NUMBER:
                if tag == FLOAT64:
                    words[row, column] = big_endian(packed, at + U1, 8)
                    after = at + np.uint64(9)
                else:
                    matrix[row, column], after = whole(packed, at)
                if after == 0 or not abs(matrix[row, column]) < SAFE:
                    return -1
            elif kind == TEXT:
                first, after = text_begin(packed, at)
                if after == 0:
                    return -1
                number = numbered(packed, first, after, cells, spans, count)
                texts[row, column] = number
                if number == count:
                    spans[count, 2] = row * texts.shape[1] + column
                    count += 1
            elif kind == BOOLEAN:
                if tag != TRUE and tag != FALSE:
                    return -1
                matrix[row, column] = tag == TRUE
                after = at + U1
            else:
                after = ignored(packed, at)
                if after == 0:
                    return -1
            at = after
    return count
