"""JSON in and out: decoding tells reason and field path of whatever is wrong, and nothing of its value.

`msgspec` checks types and ranges while it parses. What it cannot say in a type (hex digits, a limit in bytes, one field
against another) is checked here afterwards, so that a decoded message is a valid one.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Generic, TypeVar

import msgspec

from schemas.announcement import Announcement
from schemas.dead_letter import DeadLetter
from schemas.errors import DeadReason, PoisonMessage
from schemas.fields import MAX_QUERY_BYTES
from schemas.hashes import bad_hash, hash_fields, is_hex, unhexed
from schemas.insights import Accounting, Cluster, Focus, Pattern, PlannerState, PrefixState, Score, WindowStats
from schemas.policy import Policy
from schemas.replica_sample import ReplicaSample
from schemas.request_event import RequestEvent
from schemas.residency import Residency
from schemas.reward_event import RewardEvent
from schemas.topics import MAX_RECORD_BYTES
from schemas.warmup_command import WarmupCommand
from schemas.warmup_outcome import WarmupOutcome

Message = (
    RequestEvent
    | RewardEvent
    | ReplicaSample
    | Residency
    | WarmupCommand
    | WarmupOutcome
    | Policy
    | WindowStats
    | Accounting
    | Focus
    | Cluster
    | Score
    | Pattern
    | PlannerState
    | PrefixState
    | Announcement
    | DeadLetter
)
MESSAGES: tuple[type[msgspec.Struct], ...] = Message.__args__

M = TypeVar("M", bound=msgspec.Struct)

_encoder = msgspec.json.Encoder()
_PATH = re.compile(r" - at `(\$[^`]*)`$")
_REGISTRY_PREFIX_BYTES = 5


def encode(message: msgspec.Struct) -> bytes:
    """One message as UTF-8 JSON; fields at their default are left out."""
    return _encoder.encode(message)


class Reader(Generic[M]):
    """Reads records as one of a few kinds; the decoder is built once."""

    def __init__(self, *kinds: type[M]) -> None:
        union: Any = kinds[0]
        for kind in kinds[1:]:
            union = union | kind
        self._decode = msgspec.json.Decoder(union).decode

    def decode(self, record: bytes) -> M:
        """One valid message. The five bytes that a schema registry puts in front (0 and a schema id) are skipped.

        Raises:
            PoisonMessage: with the enumerated reason and the path of the field.
        """
        message = self._parse(record)
        _CHECKS.get(type(message), _nothing_more)(message)
        return message

    def decode_hashed(self, record: bytes) -> tuple[M, bytes]:
        """The same, and a request's hashes, 16 bytes each, those of segments first: to check them is to read them."""
        message = self._parse(record)
        return message, _CHECKS.get(type(message), _nothing_more)(message)

    def _parse(self, record: bytes) -> M:
        if len(record) > MAX_RECORD_BYTES:
            raise PoisonMessage(DeadReason.TOO_LARGE, "$", f"{len(record)} bytes, at most {MAX_RECORD_BYTES}")
        body = record[_REGISTRY_PREFIX_BYTES:] if record and record[0] == 0 else record
        try:
            message: M = self._decode(body)
            return message
        except msgspec.ValidationError as error:
            raise _explained(error) from None
        except msgspec.DecodeError as error:
            raise _unreadable(error, body) from None
        except (UnicodeDecodeError, RecursionError) as error:
            reason = DeadReason.NOT_UTF8 if isinstance(error, UnicodeDecodeError) else DeadReason.MALFORMED_JSON
            raise PoisonMessage(reason, "$", type(error).__name__) from None


_reader = lru_cache(maxsize=64)(Reader)


def decode(record: bytes, *kinds: type[M]) -> M:
    """Reads one record as one of `kinds`; see `Reader.decode`, which is quicker for many."""
    reader: Reader[M] = _reader(*kinds)
    return reader.decode(record)


def _check_request(event: RequestEvent) -> bytes:
    query, digest, completed = event.query, event.query_sha256, event.completed_at_ms
    # A character has at most four bytes: only long texts need to be measured.
    if query is not None and len(query) * 4 > MAX_QUERY_BYTES and len(query.encode()) > MAX_QUERY_BYTES:
        raise PoisonMessage(DeadReason.TOO_LARGE, "$.query", f"more than {MAX_QUERY_BYTES} bytes")
    if completed is not None and completed < event.occurred_at_ms:
        raise PoisonMessage(DeadReason.OUT_OF_RANGE, "$.completed_at_ms", "before occurred_at_ms")
    # One pass over all hashes of the event; which one is wrong is only asked when one is.
    digits = "".join([segment.hash for segment in event.segments])
    if digest is not None:
        digits += digest
    if event.response_sha256 is not None:
        digits += event.response_sha256
    if event.reasoning is not None:
        digits += "".join([step.input_hash for step in event.reasoning.steps])
    hashes = unhexed(digits)
    if hashes is None:
        raise _bad_hash_of(event)
    return hashes


def _bad_hash_of(event: RequestEvent) -> PoisonMessage:
    for index, segment in enumerate(event.segments):
        if not is_hex(segment.hash):
            return _not_hex(f"$.segments[{index}].hash")
    return _not_hex(bad_hash(event) or "$")


def _not_hex(path: str) -> PoisonMessage:
    return PoisonMessage(DeadReason.BAD_HASH, path, "not lower-case hex")


def _check_hashes(message: msgspec.Struct) -> bytes:
    path = bad_hash(message)
    if path is not None:
        raise _not_hex(path)
    return b""


def _nothing_more(_: object) -> bytes:
    """Types say everything about the other messages."""
    return b""


_CHECKS: dict[type, Callable[[Any], bytes]] = {kind: _check_hashes for kind in MESSAGES if hash_fields(kind)}
_CHECKS[RequestEvent] = _check_request


def _explained(error: msgspec.ValidationError) -> PoisonMessage:
    text = str(error)
    found = _PATH.search(text)
    path = found.group(1) if found else "$"
    sentence = text[: found.start()] if found else text
    if sentence.startswith("Object missing required field"):
        field = sentence.split("`")[1]
        if field == "schema":
            return PoisonMessage(DeadReason.UNKNOWN_SCHEMA, "$.schema", "missing")
        return PoisonMessage(DeadReason.MISSING_FIELD, f"{path}.{field}")
    if path == "$.schema":
        return PoisonMessage(DeadReason.UNKNOWN_SCHEMA, path)
    if sentence.startswith("Invalid value") or sentence.startswith("Invalid enum value"):
        return PoisonMessage(DeadReason.OUT_OF_RANGE, path, "not one of the allowed values")
    if " of length " in sentence or " >= " in sentence or " <= " in sentence or " < " in sentence or " > " in sentence:
        return PoisonMessage(DeadReason.OUT_OF_RANGE, path, sentence)
    return PoisonMessage(DeadReason.WRONG_TYPE, path, sentence)


def _unreadable(error: msgspec.DecodeError, body: bytes) -> PoisonMessage:
    try:
        body.decode()
    except UnicodeDecodeError:
        return PoisonMessage(DeadReason.NOT_UTF8)
    return PoisonMessage(DeadReason.MALFORMED_JSON, "$", str(error)[:120])
