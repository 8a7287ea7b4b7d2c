"""Small numbers for keys of any kind, so that counts are columns; a number whose key has gone is given again."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Generic, TypeVar

import numpy as np

from analytics.running_entropy import Integers

K = TypeVar("K", bound=Hashable)


class KeyNumbers(Generic[K]):
    """Keys by number, and numbers by key. `capacity` is one more than the greatest number given so far.

    >>> numbers = KeyNumbers[str]()
    >>> numbers.of(["a", "b", "a"]).tolist()
    [0, 1, 0]
    >>> numbers.release([0])
    >>> numbers.of(["c", "b"]).tolist()
    [0, 1]
    """

    def __init__(self) -> None:
        self._numbers: dict[K, int] = {}
        self._keys: list[K | None] = []
        self._free: list[int] = []

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def capacity(self) -> int:
        """Length of a column that has a place for every number."""
        return len(self._keys)

    def of(self, keys: Sequence[K]) -> Integers:
        """The number of each key; new keys get one."""
        known, held, free = self._numbers, self._keys, self._free
        found = list(map(known.get, keys))
        if None in found:
            for place, number in enumerate(found):
                if number is not None:
                    continue
                key = keys[place]
                # The key may have come before in these keys.
                number = known.get(key)
                if number is None:
                    if free:
                        number = free.pop()
                        held[number] = key
                    else:
                        number = len(held)
                        held.append(key)
                    known[key] = number
                found[place] = number
        return np.array(found, dtype=np.int64)

    def key(self, number: int) -> K:
        """The key that has a number.

        Raises:
            KeyError: none has it.
        """
        key = self._keys[number]
        if key is None:
            raise KeyError(number)
        return key

    def release(self, numbers: Iterable[int]) -> None:
        """These numbers may be given to other keys."""
        known, held, free = self._numbers, self._keys, self._free
        for number in numbers:
            key = held[number]
            if key is not None:
                del known[key]
                held[number] = None
                free.append(number)
