"""What a shard writes down of rewards and answers: one entry each, in the order in which they came."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec import Struct


class Answering(Struct, frozen=True, array_like=True, tag="a"):
    """The answer of a finished request.

    Attributes:
        query, response: 16 bytes; `response` is empty where the producer sent no hash.
        ref: hash of the blob with its text; empty where there is none.
        model, adapter, template: of the request.
        finish_reason, status: as in the event; 200 to 299 is a success.
        at_ms: event time. now_ms: where event time stood when it came.
    """

    scope: str
    query: bytes
    response: bytes
    ref: str
    domain: str
    model: str
    adapter: str
    template: str
    semantic_version: str
    finish_reason: str
    status: int
    at_ms: int
    now_ms: int

    @property
    def usable(self) -> bool:
        """Whether it is a whole answer whose text can be served again."""
        return bool(self.response and self.ref) and self.finish_reason == "stop" and 200 <= self.status < 300


class Judging(Struct, frozen=True, array_like=True, tag="r"):
    """A reward.

    Attributes:
        response: 16 bytes of the answer that it names; empty where it names none.
        micro: the reward in millionths.
        source: index into `facts.SOURCES`.
        identity: 64-bit hash of the judgement.
        due_ms: event time at which it is given up if its request has not come; 0 when the request was known.
    """

    scope: str
    query: bytes
    response: bytes
    micro: int
    source: int
    at_ms: int
    identity: int
    due_ms: int


class Repeated(Struct, frozen=True, array_like=True, tag="d"):
    """A reward that was seen before."""


class Lost(Struct, frozen=True, array_like=True, tag="x"):
    """A reward, or an answer, for which there was no room."""

    answer: bool


Entry = Answering | Judging | Repeated | Lost

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[Entry])


def pack_entries(entries: Iterable[Entry]) -> bytes:
    """The bytes of some entries."""
    return _encoder.encode(list(entries))


def read_entries(blob: bytes) -> list[Entry]:
    """What `pack_entries` wrote."""
    return _decoder.decode(blob)
