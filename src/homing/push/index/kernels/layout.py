"""Where everything lies inside a block: one array of 64-bit words that is also the file format.

A block holds subscriptions as boxes. A box (an *entry*) is a list of bounds on lanes, the set
of subscriptions that share it and, for the few that bounds alone cannot decide, the number of a
residual check. The first words are the header: counts, then the word offset of each section.

    section   element        one per       meaning
    ENTRY     4 x u32        entry + 1     first bound, first subscriber, residual check, 0
    BOUND     u64, 2 x f64   bound         lane, low, high; | EXCLUDE: all but `low` pass
    ID        u64            subscriber    the subscription's id
    DEAD      u8             subscriber    1 once it was removed
    SLOT      u32            hash cell     subscriber position + 1, 0: free; open addressing by id
    CUTSTART  u32            lane + 1      where the lane's cuts start
    CUT       f64            cut           a value's code is the number of cuts at or below it
    STRIP     5 x u64        strip + 1     lane a, low code a, high code a, lane b, first page
    BOX       4 x u16        page          low and high code on lane a, on lane b
    PAGEAT    u64            page + 1      word offset of the page's body
    PAGE      u64            page          the bodies

PLANNED in the header is a float: how far the plan was from the best one when it was made.

A page is 512 entries (entry e is slot e % 512 of page e // 512). Its body is a whole number of
cache lines: one of live bits; a head with the number of dimensions (| the number of entries << 32)
and a descriptor for each (lane | base code << 32 | shift << 48), lanes ascending; then for each
dimension 33 rows of one line; then a record of one line for each entry; then a sketch of two words
for each. Row r of a dimension has the bit of a slot set when the slot accepts some value whose bucket
is r; row 32 is for publications without a value in that lane. A publication ANDs one row per
dimension: the bits that stay are the candidates.

A record decides nearly every candidate with one vector comparison and no other memory. It is 16
lows and 16 highs of 16 bits. In dimension d a publication has its code + 1, and one strictly between
low and high is inside for certain, one outside of them is not, and on the edge the exact bounds are
asked. Dimension FLAG, in which every publication has the code ASK, tells what kind of entry it is: PLAIN
ones are decided by their record, ASK ones (several subscribers, a residual check, a bound that the
page has no dimension for) are never certain, GONE ones never pass. The last two dimensions hold
the id of a PLAIN entry's only subscriber: its low 32 bits among the lows, the others among the highs.

A sketch is for whole batches (sweep.py): eight numbers of 16 bits. The first two are the low and the
high code on the strip's lane a. A pair of rows follows for each of three more dimensions, those with
the narrowest bounds: the one of the low bound, and the one behind that of the high bound. Row r of
dimension d has the number d * (TERRACES + 1) + r, where a code's row is its code >> shift on every
page alike. Where there are fewer bounds, dimension EVERY, which is lane ALWAYS, lets all pass.

A block without pages (the one that takes new subscriptions) is scanned entry by entry.
"""

from __future__ import annotations

VERSION = 4

(
    MAGIC,
    WORDS,
    ENTRIES,
    BOUNDS,
    SUBSCRIBERS,
    PAGES,
    STRIPS,
    LANES,
    HASHMASK,
    DEADCOUNT,
    PLANNED,
    ENTRY,
    BOUND,
    ID,
    DEAD,
    SLOT,
    CUTSTART,
    CUT,
    STRIP,
    BOX,
    PAGEAT,
    PAGE,
) = range(22)
HEADER = 32

SLOTS = 512
SLOT_BITS = 9
# One row is one cache line of 64 bytes; blocks start on a line, and so does every row.
LINE = 8
# 32 instead of 64: a fifth more candidates to verify, half the memory to fetch, a quarter faster.
BUCKETS = 32
ROWS = BUCKETS + 1
ROW_WORDS = ROWS * LINE
STRIP_WORDS = 5
# What fits a record beside FLAG and the id; rows for more lanes would cost more memory than the
# candidates they save. Count and descriptors take two lines of head.
MAX_DIMENSIONS = 13
HEAD = 16
# The dimension of a record that tells its kind, by its low bound.
FLAG = 13
PLAIN, ASK, GONE = 0, 2, 3
# The code ASK in all four lanes of a word: inside of every bound that a record does not have.
UNASKED = ASK * 0x0001000100010001
RECORD_LANES = 16
SKETCH = 2
# What a sketch tells apart on a lane, and how many dimensions it has beside lane a.
TERRACES = 64
SKETCHED = 3
EVERY = 15
# Codes must fit 16 bits beside ABSENT; a thousand quantiles put a 0.1 % range into its own bucket.
MAX_CUTS = 1023
# One more than this, as in a record, is still below the high of those that bound nothing.
ABSENT = 65533
UNBOUNDED = 65535
EXCLUDE = 1 << 31
LANE_MASK = EXCLUDE - 1
NO_RESIDUAL = 0xFFFFFFFF
# Lane 0 is the lane that every publication has with the value 0; columns as in match.py.
ALWAYS = 0
NONE = 1

# What a call of a match kernel counted.
(PAGES_VISITED, CANDIDATES, FALSE_CANDIDATES, MATCHES, PENDING, SWEPT) = range(6)
COUNTERS = 6

# What a match kernel is given: addresses, and how many elements or rows are there.
(LANES_AT, LANES_SIZE, VALUES_AT, VALUES_SIZE, CODED_AT) = range(5)
# The desk that it works at.
(
    COLUMN_AT,
    COLUMN_SIZE,
    WORK_AT,
    WORK_SIZE,
    FOUND_AT,
    FOUND_SIZE,
    OWNERS_AT,
    PENDING_AT,
    PENDING_SIZE,
    COUNTERS_AT,
) = range(10)
DESK = 10
