"""Where everything lies inside a block: one array of 64-bit words that is also the file format.

A block holds subscriptions as boxes. A box (an *entry*) is a list of bounds on lanes, the set
of subscriptions that share it and, for the few that bounds alone cannot decide, the number of a
residual check. The first words are the header: counts, then the word offset of each section.

    section   element        one per       meaning
    FIRST     u32            entry + 1     where its bounds start
    SUBS      u32            entry + 1     where its subscribers start
    RESIDUAL  i32            entry         residual check to ask after the bounds, -1: none
    LANE      u32            bound         the lane; | EXCLUDE: every value but `low` passes
    BOUND     2 x f64        bound         low, high; both belong to the box
    ID        u64            subscriber    the subscription's id
    DEAD      u8             subscriber    1 once it was removed
    SLOT      u32            hash cell     subscriber position + 1, 0: free; open addressing by id
    CUTSTART  u32            lane + 1      where the lane's cuts start
    CUT       f64            cut           a value's code is the number of cuts at or below it
    STRIP     u64            5 per strip   lane a, low code a, high code a, lane b, first page
    BOX       u16            4 per page    low and high code on lane a, on lane b
    PAGEAT    u64            page + 1      word offset of the page's body
    PAGE      u64            page          the bodies

PLANNED in the header is a float: how far the plan was from the best one when it was made.

A page is 256 entries (entry e is slot e % 256 of page e // 256). Its body: 4 words of live bits,
the number of its dimensions, a descriptor for each (lane | base code << 32 | shift << 48), then for
each dimension 65 rows of 4 words. Row r of a dimension has the bit of a slot set when the slot
accepts some value whose bucket is r; row 64 is for publications without a value in that lane. A
publication ANDs one row per dimension: the bits that stay are the candidates.

A block without pages (the one that takes new subscriptions) is scanned entry by entry.
"""

from __future__ import annotations

VERSION = 1

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
    FIRST,
    SUBS,
    RESIDUAL,
    LANE,
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
) = range(25)
HEADER = 32

SLOTS = 256
SLOT_BITS = 8
LIVE_WORDS = 4
BUCKETS = 64
ROWS = BUCKETS + 1
ROW_WORDS = ROWS * LIVE_WORDS
ABSENT_ROW = BUCKETS * LIVE_WORDS
STRIP_WORDS = 5
# Rows for more lanes than this cost more memory than the candidates they would save.
MAX_DIMENSIONS = 12
# Codes must fit 16 bits beside ABSENT; a thousand quantiles put a 0.1 % range into its own bucket.
MAX_CUTS = 1023
ABSENT = 65535
EXCLUDE = 1 << 31
LANE_MASK = EXCLUDE - 1
NO_RESIDUAL = 0xFFFFFFFF
# Lane 0 is the lane that every publication has with the value 0; columns as in match.py.
ALWAYS = 0
NONE = 1

# What a call of a match kernel counted.
(PAGES_VISITED, CANDIDATES, FALSE_CANDIDATES, MATCHES, PENDING) = range(5)
COUNTERS = 5
