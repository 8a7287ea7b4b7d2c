"""Bad records: every kind is refused with its reason and the path of the field, and nothing of its value."""

from __future__ import annotations

import contextlib
import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas import DeadReason, PoisonMessage, RequestEvent, RewardEvent, decode, encode
from schemas.codec import Reader
from schemas.topics import MAX_RECORD_BYTES
from tests.schemas.examples import EXAMPLES

GOOD = json.loads(encode(EXAMPLES["request_event"]))
READER: Reader[RequestEvent | RewardEvent] = Reader(RequestEvent, RewardEvent)


def changed(**fields: object) -> bytes:
    return json.dumps({**GOOD, **fields}).encode()


def without(field: str) -> bytes:
    return json.dumps({key: value for key, value in GOOD.items() if key != field}).encode()


def segments(count: int) -> list[dict[str, object]]:
    return [{"hash": f"{index:032x}", "tokens": 1} for index in range(count)]


BAD: dict[str, tuple[bytes, DeadReason, str]] = {
    "empty": (b"", DeadReason.MALFORMED_JSON, "$"),
    "truncated": (encode(EXAMPLES["request_event"])[:-20], DeadReason.MALFORMED_JSON, "$"),
    "not an object": (b"[1, 2]", DeadReason.WRONG_TYPE, "$"),
    "deeply nested": (b"[" * 200_000, DeadReason.WRONG_TYPE, "$"),
    "not UTF-8": (b'{"schema":"request_event/1","event_id":"\xff\xfe"}', DeadReason.NOT_UTF8, "$"),
    "NaN": (changed(ttft_ms=float("nan")), DeadReason.MALFORMED_JSON, "$"),
    "infinite": (changed(ttft_ms=float("inf")), DeadReason.MALFORMED_JSON, "$"),
    "no schema": (without("schema"), DeadReason.UNKNOWN_SCHEMA, "$.schema"),
    "schema of the future": (changed(schema="request_event/2"), DeadReason.UNKNOWN_SCHEMA, "$.schema"),
    "field missing": (without("tenant"), DeadReason.MISSING_FIELD, "$.tenant"),
    "wrong type": (changed(tenant=5), DeadReason.WRONG_TYPE, "$.tenant"),
    "wrong type, nested": (changed(render={"template_sha": 1}), DeadReason.WRONG_TYPE, "$.render.template_sha"),
    "negative time": (changed(occurred_at_ms=-1), DeadReason.OUT_OF_RANGE, "$.occurred_at_ms"),
    "time in seconds of the far future": (changed(occurred_at_ms=10**16), DeadReason.OUT_OF_RANGE, "$.occurred_at_ms"),
    "completed before it began": (changed(completed_at_ms=1), DeadReason.OUT_OF_RANGE, "$.completed_at_ms"),
    "unknown phase": (changed(phase="middle"), DeadReason.OUT_OF_RANGE, "$.phase"),
    "long name": (changed(tenant="t" * 257), DeadReason.OUT_OF_RANGE, "$.tenant"),
    "empty name": (changed(tenant=""), DeadReason.OUT_OF_RANGE, "$.tenant"),
    "long query": (changed(query="q" * 100_000), DeadReason.OUT_OF_RANGE, "$.query"),
    "query long in bytes": (changed(query="é" * 40_000), DeadReason.TOO_LARGE, "$.query"),
    "2,000 segments": (changed(segments=segments(2_000)), DeadReason.OUT_OF_RANGE, "$.segments"),
    "upper-case hash": (changed(query_sha256="A" * 32), DeadReason.BAD_HASH, "$.query_sha256"),
    "segment's hash": (
        changed(segments=[*segments(3), {"hash": "g" * 32, "tokens": 1}]),
        DeadReason.BAD_HASH,
        "$.segments[3].hash",
    ),
    "an answer's hash that is none": (changed(response_sha256="z" * 32), DeadReason.BAD_HASH, "$.response_sha256"),
    "a step's hash that is none": (
        changed(reasoning={"steps": [{"op_type": "retrieve", "input_hash": "a " * 16}]}),
        DeadReason.BAD_HASH,
        "$.reasoning.steps[0].input_hash",
    ),
    "short hash": (changed(query_sha256="ab"), DeadReason.OUT_OF_RANGE, "$.query_sha256"),
    "negative tokens": (
        changed(segments=[{"hash": "0" * 32, "tokens": -1}]),
        DeadReason.OUT_OF_RANGE,
        "$.segments[0].tokens",
    ),
    "weight 0": (changed(sample_weight=0), DeadReason.OUT_OF_RANGE, "$.sample_weight"),
    "5 MB": (b" " * 5_000_000, DeadReason.TOO_LARGE, "$"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_record_tells_reason_and_path(name: str) -> None:
    record, reason, path = BAD[name]
    with pytest.raises(PoisonMessage) as caught:
        READER.decode(record)
    assert (caught.value.reason, caught.value.path) == (reason, path)


def test_a_reward_outside_of_its_range() -> None:
    record = json.loads(encode(EXAMPLES["reward_event"]))
    with pytest.raises(PoisonMessage) as caught:
        READER.decode(json.dumps({**record, "reward": 1.01}).encode())
    assert caught.value.path == "$.reward"


HASHES = {
    "warmup_command.prefix": ["command_id", "after.0", "supersedes", "target.segments.1.hash"],
    "warmup_command.embedding": ["target.fingerprint", "target.query_sha256"],
    "warmup_command.cancel": ["target.command_ids.0"],
    "warmup_outcome": ["outcome_id", "command_id"],
    "dead_letter": ["dead_id"],
    "reward_event": ["query_sha256", "response_sha256"],
}


@pytest.mark.parametrize(("name", "place"), [(name, place) for name, places in HASHES.items() for place in places])
def test_every_hash_of_a_message_is_lower_case_hex(name: str, place: str) -> None:
    example = EXAMPLES[name]
    record = json.loads(encode(example))
    *way, last = (int(step) if step.isdigit() else step for step in place.split("."))
    part = record
    for step in way:
        part = part[step]
    part[last] = "G" * 32
    with pytest.raises(PoisonMessage) as caught:
        decode(json.dumps(record).encode(), type(example))
    path = "$" + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in (*way, last))
    assert (caught.value.reason, caught.value.path) == (DeadReason.BAD_HASH, path)


def test_1_024_segments_and_64_kB_are_accepted() -> None:
    event = READER.decode(changed(segments=segments(1_024), query="q" * 65_536))
    assert isinstance(event, RequestEvent)
    assert len(event.segments) == 1_024


def test_the_limit_of_a_record_is_one_mebibyte() -> None:
    record = encode(EXAMPLES["request_event"])
    READER.decode(record + b" " * (MAX_RECORD_BYTES - len(record)))
    with pytest.raises(PoisonMessage):
        READER.decode(record + b" " * (MAX_RECORD_BYTES - len(record) + 1))


@pytest.mark.parametrize("name", BAD)
def test_no_value_is_told(name: str) -> None:
    with pytest.raises(PoisonMessage) as caught:
        READER.decode(BAD[name][0])
    assert "where is my card" not in str(caught.value).lower()
    assert len(str(caught.value)) < 250


@given(st.binary(max_size=300))
def test_any_bytes_are_a_message_or_poison(record: bytes) -> None:
    with contextlib.suppress(PoisonMessage):
        READER.decode(record)


@given(st.data())
def test_any_damage_to_a_good_record_is_a_message_or_poison(data: st.DataObject) -> None:
    record = bytearray(encode(EXAMPLES["request_event"]))
    for _ in range(data.draw(st.integers(1, 4))):
        record[data.draw(st.integers(0, len(record) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(PoisonMessage):
        assert isinstance(READER.decode(bytes(record)), RequestEvent)


@pytest.mark.parametrize("name", EXAMPLES)
def test_what_is_written_is_read_again(name: str) -> None:
    example: msgspec.Struct = EXAMPLES[name]
    assert decode(encode(example), type(example)) == example
