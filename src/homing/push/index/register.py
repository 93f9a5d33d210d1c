"""Register: strings and the numbers that stand for them, forgotten in slices."""

from __future__ import annotations


class Register:
    """A number for every text that a subscription names; unused ones are given out again.

    Forgetting goes on beside the writer: `begin`, then `forget` slice by slice, then `end`. What the
    writer names in between stays. Freed numbers are held back until `end`: whoever still
    reads by the old numbers must not meet a new text under one of them.
    """

    def __init__(self, first: int) -> None:
        self.numbers: dict[str, int] = {}
        self.texts: list[str | None] = [None] * first
        self._free: list[int] = []
        self._freed: list[int] = []
        self._named: set[int] | None = None

    def __len__(self) -> int:
        return len(self.numbers)

    def number(self, text: str) -> int:
        """The text's number, a new one if need be."""
        number = self.numbers.get(text)
        if number is None:
            number = self._new(text)
        if self._named is not None:
            self._named.add(number)
        return number

    def _new(self, text: str) -> int:
        if self._free:
            number = self._free.pop()
            self.texts[number] = text
        else:
            number = len(self.texts)
            self.texts.append(text)
        self.numbers[text] = number
        return number

    def begin(self) -> None:
        """From now on what is named is remembered, until `end`."""
        self._named = set()

    def forget(self, numbers: list[int]) -> None:
        """Drop those of these numbers that nobody named since `begin`."""
        assert self._named is not None
        for number in numbers:
            text = self.texts[number]
            if text is not None and number not in self._named:
                del self.numbers[text]
                self.texts[number] = None
                self._freed.append(number)

    def end(self) -> None:
        """The freed numbers may be given out."""
        self._free += self._freed
        self._freed = []
        self._named = None

    @classmethod
    def restore(cls, texts: list[str | None], first: int) -> Register:
        """A register with these texts, by number."""
        self = cls(first)
        self.texts = texts
        self.numbers = {text: number for number, text in enumerate(texts) if text is not None}
        self._free = [n for n, text in enumerate(texts) if text is None and n >= first]
        return self
