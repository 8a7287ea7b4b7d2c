from __future__ import annotations

import struct

from hypothesis import given
from hypothesis import strategies as st

from analytics.bundles import pack, pack_record, records_of, unpack


@given(st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), st.binary(max_size=300))))
def test_records_come_out_as_they_went_in(records: list[tuple[int, bytes]]) -> None:
    assert list(records_of(b"".join(pack_record(*each) for each in records))) == records


@given(st.lists(st.binary(max_size=300)), st.binary(max_size=3))
def test_what_was_packed_is_unpacked(parts: list[bytes], before: bytes) -> None:
    assert unpack(before + pack(parts), len(before)) == parts


def test_a_record_lies_there_as_java_writes_it() -> None:
    assert pack_record(1_796_000_000_000, b"abc") == struct.pack(">qi", 1_796_000_000_000, 3) + b"abc"
