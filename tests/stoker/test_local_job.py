"""The job in one process: it accounts for every record, warms, groups and forgets nothing that the real one says."""

from __future__ import annotations

from collections import Counter

import msgspec

from analytics.policy import PolicyBook
from connectors.encoders.fake import FakeEncoder
from jobs.settings import JobSettings
from schemas import ReplicaSample, encode
from stoker.local_job import LocalJob
from stoker.replay.generated import GeneratedConfig, generated
from stoker.replay.offline import OfflineConfig, offline
from stoker.replay.turns import until

START_MS = 1_700_000_000_000


def played(minutes: float = 2.0, encoder: FakeEncoder | None = None) -> tuple[LocalJob, int]:
    """A job after some minutes of a small workload on one replica, and how many records it got."""
    turns = until(generated(GeneratedConfig(requests_per_s=5, seed=5)), minutes * 60_000)
    job, records, next_sample_ms = LocalJob(JobSettings(), PolicyBook(), encoder), 0, START_MS
    for event in offline(turns, OfflineConfig(start_ms=START_MS)):
        while next_sample_ms <= event.event_time_ms:
            sample = ReplicaSample(
                replica="r0", pool="gpu", incarnation="1", sampled_at_ms=next_sample_ms, state="ready"
            )
            job.on_record(encode(sample), next_sample_ms)
            next_sample_ms += 1000
        job.on_record(encode(event), event.event_time_ms)
        records += 1
    job.advance(next_sample_ms + 60_000)
    return job, records


def kinds(records: list[bytes]) -> Counter[str]:
    return Counter(msgspec.json.decode(record)["schema"] for record in records)


def test_every_record_is_accounted_for_and_hot_prefixes_are_commanded() -> None:
    job, records = played()
    account = job.accounting
    terms = ("counted", "second_phase", "not_demand", "late", "duplicate", "dead")
    assert sum(account[term] for term in terms) == records
    assert account["counted"] == account["second_phase"] == records // 2
    assert job.topics.dead_letters == []
    targets = Counter(msgspec.json.decode(record)["target"]["kind"] for record in job.topics.commands)
    assert targets["prefix"] > 0
    assert targets["embedding"] == 0
    assert {"window_stats/1", "accounting/1", "planner_state/1"} <= set(kinds(job.topics.insights))


def test_with_an_encoder_queries_are_embedded() -> None:
    encoder = FakeEncoder()
    job, _ = played(0.5, encoder)
    assert encoder.texts_encoded > 0
    targets = Counter(msgspec.json.decode(record)["target"]["kind"] for record in job.topics.commands)
    assert targets["embedding"] > 0


def test_the_same_records_give_the_same_bytes() -> None:
    one, other = played()[0].topics, played()[0].topics
    assert one.commands == other.commands
    assert one.insights == other.insights


def test_what_cannot_be_read_becomes_a_dead_letter() -> None:
    job = LocalJob(JobSettings(), PolicyBook())
    job.on_record(b"{", START_MS)
    assert len(job.topics.dead_letters) == 1
    assert job.accounting["dead"] == 1
