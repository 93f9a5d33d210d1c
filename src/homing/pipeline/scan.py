"""The kernel that reads publications' attributes from texts that are spelled alike.

Compiled when it is imported, or fetched from the index's cache of kernels: this file stands alone, so that
numba's own key for it is right.
"""

# mypy: allow-untyped-defs, allow-untyped-calls, no-check-untyped-defs
from __future__ import annotations

import numpy as np
from numba import njit, types

NUMBER, BOOLEAN, TEXT = 0, 1, 2
# Whole numbers below EXACT and these powers of ten are floats exactly, so that one multiplication or
# division of the two rounds once, and right. Longer ones are divided with a remainder.
EXACT = 2**53
POWERS = np.array([float(10**i) for i in range(23)])
LONGEST = 10**17  # a digit behind it still fits 64 bits; no float needs more
MOST_EXPONENT = 99
SPLIT = 2.0**27 + 1
# A quotient's remainder that is this little away from half a float's last bit may be on either side.
SURE = 1 + 2.0**-20
NO = -1

MINUS, PLUS, DOT, ZERO, NINE, QUOTE, BACKSLASH, SPACE, SMALL_E, LARGE_E, TRUE, FALSE = (
    b'-+.09"\\ eEtf'
)
REST_OF_TRUE, REST_OF_FALSE = (np.frombuffer(word, np.uint8) for word in (b"rue", b"alse"))


@njit(cache=True)
def agrees(data, at, stop, word, begin, end):
    """Where it goes on behind word[begin:end]; NO if something else is there."""
    if stop - at < end - begin:
        return NO
    for i in range(end - begin):
        if data[at + i] != word[begin + i]:
            return NO
    return at + end - begin


@njit(cache=True)
def digits(data, at, stop, number):
    """A number with the digits that follow, and where they end; NO if it becomes too long."""
    while at < stop and ZERO <= data[at] <= NINE:
        if number >= LONGEST:
            return number, NO
        number = number * 10 + np.int64(data[at] - ZERO)
        at += 1
    return number, at


@njit(cache=True)
def exponent(data, at, stop):
    """What stands behind an `e`, and where it ends; NO if that is nothing or much."""
    negative = at < stop and data[at] == MINUS
    if at < stop and (data[at] == MINUS or data[at] == PLUS):
        at += 1
    number, end = digits(data, at, min(stop, at + 3), np.int64(0))
    if end == at or number > MOST_EXPONENT:
        return np.int64(0), NO
    return (-number if negative else number), end


@njit(cache=True)
def halves(number):
    """A float as a sum of two whose products are exact (Dekker)."""
    scaled = SPLIT * number
    high = scaled - (scaled - number)
    return high, number - high


@njit(cache=True)
def quotient(whole, power):
    """A long whole number by a power of ten, rounded once; NaN where that is too close to call."""
    high = float(whole)
    low = float(whole - np.int64(high))
    about = high / power
    product = about * power
    (a, b), (c, d) = halves(about), halves(power)
    missing = ((a * c - product) + a * d + b * c) + b * d  # of the exact product
    rest = (((high - product) - missing) + low) / power
    found = about + rest
    away = rest - (found - about)
    return found if found + away * SURE == found else np.nan


@njit(cache=True)
def scaled(whole, scale):
    """whole * 10**scale as a float, rounded once; NaN where that is not plain."""
    if abs(scale) >= POWERS.size:
        return np.nan
    if whole < EXACT:
        return whole * POWERS[scale] if scale >= 0 else whole / POWERS[-scale]
    return quotient(whole, POWERS[-scale]) if scale < 0 else np.nan


@njit(cache=True)
def number(data, at, stop):
    """A number in JSON, and where it ends; NO if it is none or not so plain."""
    negative = at < stop and data[at] == MINUS
    if negative:
        at += 1
    first = at
    whole, at = digits(data, at, stop, np.int64(0))
    if at in (NO, first) or (at > first + 1 and data[first] == ZERO):
        return 0.0, NO
    scale = np.int64(0)
    if at < stop and data[at] == DOT:
        whole, end = digits(data, at + 1, stop, whole)
        scale = np.int64(at + 1 - end)
        if end == NO or scale == 0:
            return 0.0, NO
        at = end
    if at < stop and (data[at] == SMALL_E or data[at] == LARGE_E):
        power, at = exponent(data, at + 1, stop)
        scale += power
    found = scaled(whole, scale)
    if at == NO or np.isnan(found):
        return 0.0, NO
    return (0.0 - found if negative else found), at  # never -0.0


@njit(cache=True)
def boolean(data, at, stop):
    """`true` or `false`, and where it ends."""
    if at < stop and data[at] == TRUE:
        return 1.0, agrees(data, at + 1, stop, REST_OF_TRUE, 0, 3)
    if at < stop and data[at] == FALSE:
        return 0.0, agrees(data, at + 1, stop, REST_OF_FALSE, 0, 4)
    return 0.0, NO


@njit(cache=True)
def text_end(data, at, stop, most):
    """Where a text's closing quote is; NO if there is none, or something that must be unescaped."""
    for end in range(at, min(stop, at + most + 1)):
        if data[end] == QUOTE:
            return end
        if data[end] == BACKSLASH or data[end] < SPACE:
            return NO
    return NO


_bytes = types.Array(types.uint8, 1, "C", readonly=True)
_places = types.Array(types.int32, 1, "C", readonly=True)


@njit(
    types.int64(
        *(_bytes, _places, _bytes, _places, _bytes, types.int64),
        *(types.int64[::1], types.float64[:, ::1], types.int32[:, :, ::1]),
    ),
    cache=True,
    nogil=True,
)
def scan(data, offsets, between, ends, kinds, most, rows, values, spans):
    """Read the texts data[offsets[i]:offsets[i + 1]] that consist of `between`, value by value.

    between[ends[k]:ends[k + 1]] stands before value k, of kinds[k]; texts have `most` bytes at most.
    Returns how many are spelled so; `rows` tells which, `values` has their numbers and booleans by
    kind, `spans` where their texts begin and end.
    """
    found = 0
    for row in range(offsets.size - 1):
        at, stop = np.int64(offsets[row]), np.int64(offsets[row + 1])
        for k in range(kinds.size):
            at = agrees(data, at, stop, between, ends[k], ends[k + 1])
            if at == NO:
                break
            if kinds[k] == TEXT:
                end = text_end(data, at, stop, most)
                spans[k, found, 0], spans[k, found, 1] = at, end
                at = end
            elif kinds[k] == NUMBER:
                values[k, found], at = number(data, at, stop)
            else:
                values[k, found], at = boolean(data, at, stop)
            if at == NO:
                break
        if at != NO and agrees(data, at, stop, between, ends[-2], ends[-1]) == stop:
            rows[found] = row
            found += 1
    return found
