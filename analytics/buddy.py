"""GPU memory as a buddy pool whose smallest piece is 2 MB (D15). Pure accounting.

Knuth, The Art of Computer Programming, volume 1, section 2.5.
"""

from __future__ import annotations

PIECE_BYTES = 2 << 20


class BuddyPool:
    """Pieces of 2 MB times a power of two; a piece that is given back merges with its buddy when that is free too.

    Args:
        total_bytes: memory to hand out; what does not fill a piece of 2 MB is left unused.
    """

    def __init__(self, total_bytes: int) -> None:
        self.pieces = total_bytes // PIECE_BYTES
        self._free: dict[int, set[int]] = {}
        self._allocated: dict[int, int] = {}
        offset = 0
        for order in reversed(range(self.pieces.bit_length())):
            if self.pieces >> order & 1:
                self._free.setdefault(order, set()).add(offset)
                offset += 1 << order

    @property
    def total_bytes(self) -> int:
        """Bytes that can be handed out."""
        return self.pieces * PIECE_BYTES

    @property
    def free_bytes(self) -> int:
        """Bytes in no allocation, whether or not one request could get them at once."""
        return sum(len(offsets) << order for order, offsets in self._free.items()) * PIECE_BYTES

    @property
    def largest_free_bytes(self) -> int:
        """Largest allocation that would succeed now."""
        orders = [order for order, offsets in self._free.items() if offsets]
        return (1 << max(orders)) * PIECE_BYTES if orders else 0

    @property
    def fragmentation(self) -> float:
        """Share of the free bytes that one allocation cannot reach, 0..1."""
        return 1 - self.largest_free_bytes / self.free_bytes if self.free_bytes else 0.0

    def allocate(self, size_bytes: int) -> int | None:
        """Byte offset of a piece that holds `size_bytes`, or None when no free piece is large enough."""
        wanted = _order_of(size_bytes)
        offset = self._take(wanted)
        if offset is None:
            return None
        self._allocated[offset] = wanted
        return offset * PIECE_BYTES

    def allocate_run(self, count: int, size_bytes: int) -> tuple[int, ...] | None:
        """Byte offsets of `count` pieces for `size_bytes` each that follow one another, or None where there is no room.

        Each can be given back alone. What a power of two holds beyond them stays free.
        """
        wanted = _order_of(size_bytes)
        whole = wanted + (count - 1).bit_length()
        first = self._take(whole)
        if first is None:
            return None
        offsets = [first + (number << wanted) for number in range(1 << (whole - wanted))]
        for offset in offsets:
            self._allocated[offset] = wanted
        for offset in offsets[count:]:
            self.give_back(offset * PIECE_BYTES)
        return tuple(offset * PIECE_BYTES for offset in offsets[:count])

    def give_back(self, offset_bytes: int) -> None:
        """Return what was allocated at an offset. Raises KeyError for anything else."""
        offset = offset_bytes // PIECE_BYTES
        order = self._allocated.pop(offset)
        while True:
            buddy = offset ^ (1 << order)
            if buddy not in self._free.get(order, ()):
                break
            self._free[order].remove(buddy)
            offset = min(offset, buddy)
            order += 1
        self._free.setdefault(order, set()).add(offset)

    def _take(self, wanted: int) -> int | None:
        """The lowest free piece of the smallest order that is large enough, cut down to the wanted one."""
        order = min((o for o, offsets in self._free.items() if o >= wanted and offsets), default=None)
        if order is None:
            return None
        offset = min(self._free[order])
        self._free[order].remove(offset)
        while order > wanted:
            order -= 1
            self._free.setdefault(order, set()).add(offset + (1 << order))
        return offset


def _order_of(size_bytes: int) -> int:
    pieces = max(1, -(-size_bytes // PIECE_BYTES))
    return (pieces - 1).bit_length()
