"""Index: finds every subscription that a publication satisfies.

One writer adds and removes; any thread matches. What is new goes to the tail, a small block that
is scanned; full tails are paged and merged in the background into ever larger blocks (merge.py).
A reader takes the tuple of blocks as it is at that moment. Removing sets a flag in place. A merge
works on copies and is swapped in at the end, after repeating what was removed meanwhile.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from homing.errors import SubscriptionError
from homing.push.index import kernels as compiled
from homing.push.index import store
from homing.push.index.blocks import Words
from homing.push.index.building import build_module
from homing.push.index.columns import Columns
from homing.push.index.forgetting import forget_unused
from homing.push.index.kernels import layout as at
from homing.push.index.lanes import Vocabulary
from homing.push.index.merge import Size, choose_merge
from homing.push.index.planner import Sample, plan_cuts
from homing.push.index.reader import (
    CHUNK,
    Found,
    Ids,
    Offsets,
    Reader,
    View,
    checked,
    cut_up,
    end_to_end,
    in_order,
    rows_matrix,
    scan_all,
)
from homing.push.index.recent import Recent
from homing.push.index.removal import MAX_ID, find, repeat
from homing.push.index.stats import Stats, gathered
from homing.push.index.tail import Spares, Tail, bounds_in
from homing.push.values import Field, Value

# One publication in this many is sampled for the planner.
SAMPLE_EVERY = 16
# How often, in publications, the plan is held against what was sampled since.
REPLAN_EVERY = 8192
# Publications of a batch that the writer waits for, where it changed something meanwhile: a tenth of a millisecond.
HELD = 16
# Seconds that long upkeep leaves to others between two of its steps.
BREATH = 0.0001
# Unmerged tails that a snapshot copies under the lock, 130 kB each.
TAILS_COPIED = 4
# Tails that are paged in the midst of a larger merge: scanning them takes a publication a tenth of a
# millisecond, paging them as long as it takes to fill as many. One such merge inside another is for
# larger and larger blocks, of which there are few.
TAILS_WAITING = 32
MAX_MERGES = 4
# Tails that a merge takes at once, and nothing else where more wait: the sooner paged, the fewer scanned.
TAILS_AT_ONCE = 64
# With so many unmerged tails the writer waits a millisecond for each that it fills, with twice as many two,
# and so on: upkeep, which needs the interpreter too, catches up.
TAILS_BEHIND = 128
LONGEST_WAIT = 0.004


class Index:
    """Subscriptions by id (any number of 64 bits), and which of them a publication satisfies."""

    def __init__(self, *, background: bool = True) -> None:
        """With `background` false no thread is started: call `maintain` yourself, or scan."""
        self._vocabulary = Vocabulary()
        self._tail = Tail()
        self._spares = Spares()
        self._frozen: list[Tail] = []
        self._paged: list[Words] = []
        self._recent = Recent(self._tail)
        self._silent: set[int] = set()
        self._count = 0
        # Counted before anything changes: whoever finds the same number at the end saw no change in part.
        self._changes = 0
        # For each merge under way, what was removed since it began; and what they merge.
        self._removals: list[list[int]] = []
        self._busy: set[int] = set()
        self._lock = threading.Lock()
        self._merging = threading.Lock()
        self._local = threading.local()
        self._sample = Sample()
        self._planned_at = 0
        self._plan_due = False
        self._vocabulary_then = 0
        self.publications = 0
        self.totals = np.zeros(at.COUNTERS, np.int64)
        self._view = View.of([], [self._tail.words])
        self._work = threading.Event()
        self._never = threading.Event()
        self._closed = False
        self._thread: threading.Thread | None = None
        self._behind = 0  # how many times TAILS_BEHIND, when the last tail was full
        self._background = background
        if background:
            compiled.load_in_background()

    # --- subscriptions ---------------------------------------------------------------------

    def __len__(self) -> int:
        return self._count

    def __contains__(self, subscription: int) -> bool:
        with self._lock:
            return self._holds(subscription)

    def add(self, subscription: int, fields: Mapping[str, Field]) -> None:
        """Add a subscription; its id must not be in use. One without fields matches nothing."""
        with self._lock:
            if self._holds(subscription):
                raise SubscriptionError(f"subscription {subscription} is there already")
            self._changes += 1
            self._add(subscription, fields)
        if self._behind:
            self._wait_for_upkeep()

    def replace(self, subscription: int, fields: Mapping[str, Field]) -> None:
        """Set what a subscription asks for, whether it was there or not."""
        with self._lock:
            self._changes += 1
            self._remove(subscription)
            self._add(subscription, fields)
        if self._behind:
            self._wait_for_upkeep()

    def remove(self, subscription: int) -> None:
        """Remove a subscription that is there."""
        with self._lock:
            self._changes += 1
            if not self._remove(subscription):
                raise SubscriptionError(f"there is no subscription {subscription}")

    def _holds(self, subscription: int) -> bool:
        recent = self._recent
        place = recent.places.get(subscription)
        if (place is not None and place >> 32 in recent.tails) or subscription in self._silent:
            return True
        return len(self._paged) > 0 and find(self._view, subscription, False) > 0

    def _add(self, subscription: int, fields: Mapping[str, Field]) -> None:
        if not 0 <= subscription <= MAX_ID:
            raise SubscriptionError(f"a subscription's id has 64 bits, {subscription} does not")
        boxes = self._vocabulary.boxes(fields) if fields else []
        if not boxes:  # it asks for nothing, or for what no value satisfies
            self._silent.add(subscription)
        else:
            entry = self._tail.append(subscription, boxes)
            if entry < 0:
                self._freeze(len(boxes), bounds_in(boxes))
                entry = self._tail.append(subscription, boxes)
            recent = self._recent
            recent.places[subscription] = recent.newest << 32 | entry
        self._count += 1

    def _remove(self, subscription: int) -> bool:
        place = self._recent.places.pop(subscription, None)
        tail = None if place is None else self._recent.tails.get(place >> 32)
        if place is not None and tail is not None:
            tail.remove(subscription, place & 0xFFFFFFFF)
            there = True
        else:
            there = bool(self._paged) and find(self._view, subscription, True) > 0
        if there:
            for removed in self._removals:
                removed.append(subscription)
        if not there and subscription in self._silent:
            self._silent.discard(subscription)
            there = True
        self._count -= there
        return there

    def _freeze(self, entries: int, bounds: int) -> None:
        """Leave the tail to be merged and begin one with room for at least this much."""
        if len(self._tail):
            self._frozen.append(self._tail)
        self._tail = self._spares.take(entries, bounds)
        self._recent.begin(self._tail)
        self._view = self._view.with_tail(self._tail.words)
        self._wake()
        self._behind = len(self._frozen) // TAILS_BEHIND if self._thread else 0
        # Who fills a tail pays for an old one.
        self._recent.forget_one()

    def _wait_for_upkeep(self) -> None:
        """Once a tail, outside of the lock: who is faster than upkeep makes everybody scan more."""
        behind, self._behind = self._behind, 0
        self._never.wait(min(0.001 * behind, LONGEST_WAIT))

    def _show(self) -> None:
        tails = [*(frozen.words for frozen in self._frozen), self._tail.words]
        self._view = View.of(self._paged, tails)

    # --- publications ----------------------------------------------------------------------

    def match(self, attributes: Mapping[str, Value]) -> Ids:
        """The ids of all subscriptions that the attributes satisfy, in no particular order."""
        reader, vocabulary = self._reader(), self._vocabulary
        with self._lock:
            changes, row = self._changes, reader.shapes.row(attributes, vocabulary)
            view, known = self._view, vocabulary.lanes
        ids, pending = reader.match_row(compiled.ready(), view, row, known)
        if self._changes != changes:
            # Seen half with what changed meanwhile and half without: once more, and the writer waits.
            reader.discard()
            with self._lock:
                row = reader.shapes.row(attributes, vocabulary)
                ids, pending = reader.match_row(compiled.ready(), self._view, row, vocabulary.lanes)
        self.publications += 1
        if self.publications % SAMPLE_EVERY == 0:
            reader.settle(self.totals)
            self._sample.add(row.lanes, row.values[0, at.NONE + 1 :])
            self._consider_plan()
        if pending is None:
            return ids
        passed = checked(pending, [attributes], vocabulary.residuals)
        return np.concatenate([ids, passed[:, 2]])

    def match_batch(self, rows: Sequence[Mapping[str, Value]]) -> tuple[Offsets, Ids]:
        """All matches of many publications: those of rows[i] are ids[offsets[i]:offsets[i + 1]]."""
        shapes = self._reader().shapes
        return self._match_chunks(rows, lambda some: rows_matrix(some, shapes, self._vocabulary))

    def match_columns(self, columns: Mapping[str, object]) -> tuple[Offsets, Ids]:
        """The same for a batch given as one array per attribute; see columns.py."""
        return self._match_chunks(Columns(columns), lambda some: some.matrix(self._vocabulary))

    def _match_chunks(self, rows: Any, matrix_of: Any) -> tuple[Offsets, Ids]:
        parts: list[tuple[Offsets, Ids]] = []
        waiting = [(chunk, False) for chunk in cut_up(rows, CHUNK)]
        while waiting:
            chunk, held = waiting.pop()
            found: Found | None = None
            with self._lock:
                changes, (lanes, matrix) = self._changes, matrix_of(chunk)
                seen = (self._view, lanes, matrix, self._vocabulary.lanes)
                if held:
                    found = self._found(*seen)
            if not held:
                found = self._found(*seen)
            if found is None:
                waiting += [(half, held) for half in cut_up(chunk, len(chunk) // 2)]
            elif not held and self._changes != changes:
                # As in `match`: once more, a few at a time, for which the writer waits.
                self._reader().discard()
                waiting += [(piece, True) for piece in cut_up(chunk, HELD)]
            else:
                self._reader().settle(self.totals)
                self._learn(lanes, matrix)
                parts.append(in_order(found, chunk, self._vocabulary.residuals))
        return end_to_end(parts, len(rows))

    def _found(
        self,
        view: View,
        lanes: npt.NDArray[np.int32],
        values: npt.NDArray[np.float64],
        known_lanes: int,
    ) -> Found | None:
        kernels = compiled.ready()
        if kernels is None:
            return scan_all(view, lanes, values, known_lanes)
        return self._reader().match(kernels, view, lanes, values, known_lanes)

    def _reader(self) -> Reader:
        """This thread's buffers."""
        try:
            reader: Reader = self._local.reader
        except AttributeError:
            reader = self._local.reader = Reader()
        return reader

    # --- upkeep ----------------------------------------------------------------------------

    def _learn(self, lanes: npt.NDArray[np.int32], matrix: npt.NDArray[np.float64]) -> None:
        before = self.publications
        self.publications += len(matrix)
        some = matrix[-before % SAMPLE_EVERY :: SAMPLE_EVERY, at.NONE + 1 :]
        self._sample.add_all(lanes, some.copy())
        self._consider_plan()

    def _consider_plan(self) -> None:
        if self.publications - self._planned_at >= REPLAN_EVERY:
            self._planned_at = self.publications
            self._plan_due = True
            self._wake()

    def _wake(self) -> None:
        if not self._background or self._closed:
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="homing-index", daemon=True)
            self._thread.start()
        self._work.set()

    def _run(self) -> None:
        try:
            compiled.load()
            while not self._closed:
                self._work.wait()
                self._work.clear()
                self._spares.refill()
                while self.maintain() and not self._closed:
                    self._spares.refill()
        finally:
            # Whatever ended it is told by the thread's own hook; the next change starts another.
            self._thread = None

    def maintain(self) -> bool:
        """One piece of upkeep, if any is due: page and merge what is new, or renew a stale plan."""
        compiled.load()
        with self._merging:
            frozen, paged, chosen = self._due()
            if chosen is None:
                chosen = self._stale(paged)
                if not chosen:
                    self._forget_places()
                    return False
            self._merge(frozen, [paged[i] for i in chosen])
            if self._vocabulary.size > 2 * self._vocabulary_then + 1024:
                self._forget()
            return True

    def _due(self) -> tuple[list[Tail], list[Words], list[int] | None]:
        """What no merge is busy with: tails, paged blocks, and which of these to merge with those."""
        with self._lock:
            frozen = [old for old in self._frozen if id(old) not in self._busy]
            paged = [block for block in self._paged if id(block) not in self._busy]
        if len(frozen) > TAILS_AT_ONCE:
            return frozen[:TAILS_AT_ONCE], paged, []
        sizes = [Size(int(b[at.SUBSCRIBERS]), int(b[at.DEADCOUNT])) for b in paged]
        return frozen, paged, choose_merge(sum(len(old) for old in frozen), sizes)

    def _merge_between(self) -> None:
        """Between the steps of a merge: a breath, and a smaller merge if many tails have come since.

        A merge of a million takes seconds, in which a busy writer fills tails by the hundred, all of
        them scanned by every publication.
        """
        self._breathe()
        if self._background:
            self._spares.refill()
        if len(self._frozen) >= TAILS_WAITING and len(self._removals) < MAX_MERGES:
            frozen, paged, chosen = self._due()
            if len(frozen) >= TAILS_WAITING:
                self._merge(frozen, [paged[i] for i in chosen or ()])

    def compact(self) -> None:
        """Merge everything into one block, planned for what was published lately."""
        compiled.load()
        with self._merging:
            self._compact()
            self._forget_places()

    def _compact(self) -> None:
        with self._lock:
            self._freeze(0, 0)
            frozen, paged = list(self._frozen), list(self._paged)
        self._merge(frozen, paged)
        self._forget()

    def _stale(self, paged: list[Words]) -> list[int]:
        """The blocks whose plan has become much worse; asked once every REPLAN_EVERY."""
        if not self._plan_due:
            return []
        self._plan_due = False
        found: list[int] = build_module().stale(paged, self._sample.by_lane())
        return found

    def _merge(self, frozen: list[Tail], paged: list[Words]) -> None:
        build, breathe = build_module(), self._merge_between
        removed: list[int] = []
        busy = {id(part) for part in (*frozen, *paged)}
        with self._lock:
            self._removals.append(removed)
            self._busy |= busy
            lanes = self._vocabulary.lanes
        try:
            boxes = build.collect([*paged, *(old.words for old in frozen)])
            block: list[Words] = []
            if boxes.residual.size:
                seen = self._sample.by_lane()
                cuts = plan_cuts(boxes.lane, boxes.bound, lanes, seen)
                breathe()
                block = [build.paged_block(boxes, cuts, breathe)]
                drift = build.drift(block[0], seen)
                block[0].view(np.float64)[at.PLANNED] = drift
            self._swap(frozen, paged, block, removed)
        finally:
            with self._lock:
                self._removals = [other for other in self._removals if other is not removed]
                self._busy -= busy

    def _forget_places(self) -> None:
        """What the writer left, while there is nothing else to do."""
        while self._recent.gone:
            with self._lock:
                self._recent.forget_one()
            self._breathe()

    def _forget(self) -> None:
        """Drop what no subscription mentions any more.

        Done when the vocabulary has doubled since the last time, so it costs little on average.
        """
        forget_unused(
            self._vocabulary,
            lambda: self._view.blocks,
            self._lock,
            self._breathe,
            lambda: self._freeze(0, 0),
        )
        self._vocabulary_then = self._vocabulary.size

    def _breathe(self) -> None:
        """A moment for whoever waits for the lock or the interpreter.

        Letting go is not enough: who waits for the interpreter takes tens of microseconds to wake up,
        and without a request, which comes after 5 ms, finds it taken again.
        """
        self._never.wait(BREATH)

    def _swap(
        self, frozen: list[Tail], paged: list[Words], block: list[Words], removed: list[int]
    ) -> None:
        """Put the merged block in the place of its parts, without what was removed meanwhile."""
        view = View.of(block)
        repeated = 0
        # Most is repeated while the writer goes on; the lock is held for the last few only.
        while len(removed) - repeated > 256:
            repeated = repeat(view, removed, repeated)
        with self._lock:
            repeat(view, removed, repeated)
            self._recent.merged(frozen)
            replaced = {id(old) for old in (*frozen, *paged)}
            self._frozen = [old for old in self._frozen if id(old) not in replaced]
            self._paged = [old for old in self._paged if id(old) not in replaced] + block
            self._show()

    # --- files and figures -----------------------------------------------------------------

    def snapshot(self, path: str | Path) -> None:
        """Write everything to a file that `load` maps into memory; the old file stays until then.

        Matching and changes go on meanwhile; the file holds what was there at one moment.
        """
        compiled.load()
        with self._merging:
            self._compact()
            while len(self._frozen) > TAILS_COPIED:
                self._merge(list(self._frozen), [])
            with self._lock:
                moment = self._moment()
            store.save(Path(path), moment, self._breathe)
            self._forget_places()

    def _moment(self) -> store.Moment:
        tails = [tail.words.copy() for tail in (*self._frozen, self._tail) if len(tail)]
        return store.Moment.of(self._vocabulary, self._paged, tails, self._silent, self._count)

    @classmethod
    def load(cls, path: str | Path, *, background: bool = True, verify: bool = True) -> Index:
        """An index from a snapshot; the file is mapped, changes stay in memory."""
        index = cls(background=background)
        loaded = store.restore(Path(path), verify=verify)
        index._vocabulary, index._paged = loaded.vocabulary, loaded.paged
        index._frozen = loaded.tails
        index._recent.restore(loaded.tails)
        index._silent, index._count = loaded.silent, loaded.subscriptions
        index._show()
        return index

    def stats(self) -> Stats:
        """What the index holds, and what matching cost so far."""
        blocks = self._view.blocks
        self._reader().settle(self.totals)
        return gathered(
            self._count, blocks, self._vocabulary, self._sample, self.publications, self.totals
        )

    def close(self) -> None:
        """Stop the background thread; the index still answers."""
        self._closed = True
        self._work.set()
