"""The job in one process: it accounts for every record, warms, groups and forgets nothing that the real one says."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest

from analytics.policy import PolicyBook
from connectors.encoders.fake import FakeEncoder
from jobs.settings import JobSettings, WarmupSettings
from schemas import ReplicaSample, RequestEvent, encode
from schemas.topics import REQUESTS, at_time_scale
from stoker.local_job import PREFIX, LocalJob
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


def late_beside_a_hostile_producer(settings: JobSettings, ahead_ms: int) -> tuple[int, int]:
    """Events of others that are late, and all of theirs, when one producer's stamps are ahead of the clock.

    Theirs are up to 4 s old (at time scale 1). Here one stream has both, and its newest record moves event time; in
    Flink the slowest partition does, so that nothing can be harder than this.
    """
    job, oldest_ms = LocalJob(settings, PolicyBook()), round(4_000 / settings.time_scale)
    sent = 0

    def send(name: str, at_ms: int) -> None:
        event = RequestEvent(
            event_id=name, request_id=name, phase="started", occurred_at_ms=at_ms, tenant="t", user="u", pool="gpu",
            model="m", query=name,
        )  # fmt: skip
        job.on_record(encode(event), at_ms)

    for now_ms in range(START_MS, START_MS + 4 * settings.demand().pane_ms, max(1, settings.demand().pane_ms // 97)):
        send(f"hostile {now_ms}", now_ms + ahead_ms)
        for age_ms in (oldest_ms, oldest_ms // 2, 0):
            send(f"honest {now_ms} {age_ms}", now_ms - age_ms)
            sent += 1
    account = job.accounting
    assert account["counted"] + account["late"] == sent * 4 // 3
    return account["late"], sent


@pytest.mark.parametrize("time_scale", [1.0, 6.0, 60.0])
def test_a_hostile_producer_with_future_stamps_makes_nobody_elses_event_late(time_scale: float) -> None:
    [requests] = at_time_scale([REQUESTS], time_scale)
    ahead_ms = int(requests.config()["message.timestamp.after.max.ms"]) - round(100 / time_scale)
    assert late_beside_a_hostile_producer(JobSettings(time_scale=time_scale), ahead_ms)[0] == 0


@pytest.mark.parametrize(
    ("settings", "ahead_ms"),
    [
        (JobSettings(warmup=WarmupSettings(lateness_ms=10_000)), 29_900),
        (JobSettings(), 49_900),
        (JobSettings(time_scale=6.0), 29_900),
    ],
    ids=["less is forgiven", "the broker takes more", "event time is faster and the broker's bound is not"],
)
def test_stamps_further_ahead_than_lateness_forgives_do_make_others_late(settings: JobSettings, ahead_ms: int) -> None:
    late, sent = late_beside_a_hostile_producer(settings, ahead_ms)
    assert 0 < late <= sent


def test_what_was_let_go_leaves_nothing_and_begins_anew() -> None:
    job, _ = played()
    held = job.state_bytes()
    assert held["demand"] > 0
    assert held["prefix"] > 0
    job.advance(START_MS + 4 * 3_600_000)
    assert job.state_bytes()["focus"] == 0
    assert job.state_bytes()["prefix"] == 0
    assert job._operator(PREFIX, "default").blank
