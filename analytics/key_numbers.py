"""Small numbers for keys of any kind, so that counts are columns; a number whose key has gone is given again."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Generic, TypeVar

import numpy as np

from analytics.running_entropy import Integers

K = TypeVar("K", bound=Hashable)


class _Numbered(dict[K, int]):
    """Looks keys up at the speed of a dict; only a new one costs a call."""

    def __init__(self) -> None:
        self.free: list[int] = []
        self.keys_by_number: list[K | None] = []

    def __missing__(self, key: K) -> int:
        if self.free:
            number = self.free.pop()
            self.keys_by_number[number] = key
        else:
            number = len(self.keys_by_number)
            self.keys_by_number.append(key)
        self[key] = number
        return number


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
        self._numbers: _Numbered[K] = _Numbered()

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def capacity(self) -> int:
        """Length of a column that has a place for every number."""
        return len(self._numbers.keys_by_number)

    def of(self, keys: Sequence[K]) -> Integers:
        """The number of each key; new keys get one."""
        return np.fromiter(map(self._numbers.__getitem__, keys), dtype=np.int64, count=len(keys))

    def key(self, number: int) -> K:
        """The key that has a number.

        Raises:
            KeyError: none has it.
        """
        key = self._numbers.keys_by_number[number]
        if key is None:
            raise KeyError(number)
        return key

    def release(self, numbers: Iterable[int]) -> None:
        """These numbers may be given to other keys."""
        held = self._numbers
        for number in numbers:
            key = held.keys_by_number[number]
            if key is not None:
                del held[key]
                held.keys_by_number[number] = None
                held.free.append(number)
