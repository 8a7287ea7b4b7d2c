"""Focus in the whole job, in one process: a promotion is a crowd, and warmed as such; machines are named and not."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping

import msgspec

from analytics.policy import PolicyBook
from connectors.encoders.fake import FakeEncoder
from jobs.settings import JobSettings
from schemas import (
    Adapter,
    Announcement,
    Embedding,
    Focus,
    Policy,
    Render,
    ReplicaSample,
    RequestEvent,
    Segment,
    WarmupCommand,
    decode,
    encode,
)
from schemas.announcement import announcement_id
from schemas.canonical import h128, query_sha256, segment_hash
from stoker.explain.findings import find
from stoker.explain.story import tell
from stoker.local_job import LocalJob

START_MS = 1_796_000_000_000
PANE_MS = 10_000
BEGINS_MS, ENDS_MS = 70_000, 92_000
PER_S = 100
PROMOTED = "what is in the autumn sale"

Asking = tuple[int, str, str, str]
"""Time from the start, query, user, template."""
DOCUMENTS = 40


def usual(chance: random.Random) -> Iterator[Asking]:
    for _ in range(PER_S * ENDS_MS // 1000):
        yield chance.randrange(ENDS_MS), f"question {chance.randrange(300)}", f"user {chance.randrange(3_000)}", "shop"


def promotion(chance: random.Random) -> Iterator[Asking]:
    """5 % of the traffic."""
    for _ in range(PER_S * (ENDS_MS - BEGINS_MS) // 1000 * 5 // 95):
        yield chance.randrange(BEGINS_MS, ENDS_MS), PROMOTED, f"guest {chance.randrange(4_000)}", "sale"


def crawler(chance: random.Random) -> Iterator[Asking]:
    """One client asks for one page again and again, 10 % of the traffic."""
    for _ in range(PER_S * (ENDS_MS - BEGINS_MS) // 1000 // 10):
        yield chance.randrange(BEGINS_MS, ENDS_MS), "page 1", "crawler", "shop"


def replay(chance: random.Random) -> Iterator[Asking]:
    """Twenty accounts of a load test, 15 % of the traffic."""
    for _ in range(PER_S * (ENDS_MS - BEGINS_MS) // 1000 * 15 // 100):
        yield chance.randrange(BEGINS_MS, ENDS_MS), f"case {chance.randrange(3)}", f"bot {chance.randrange(20)}", "shop"


def readers(chance: random.Random) -> Iterator[Asking]:
    """5 % of the traffic reads one document, each with a question of its own."""
    for number in range(PER_S * (ENDS_MS - BEGINS_MS) // 1000 * 5 // 95):
        yield chance.randrange(BEGINS_MS, ENDS_MS), f"{number} of document sale", f"guest {number % 4_000}", "shop"


def by_document(asked: list[Asking], chance: random.Random) -> list[Asking]:
    """The same about many documents, where a query names none."""
    return [
        (at, query if " of document " in query else f"{query} of document {chance.randrange(DOCUMENTS)}", *who)
        for at, query, *who in asked
    ]  # type: ignore[misc]


def document(query: str) -> tuple[Segment, ...]:
    """System prompt, document and question."""
    system = segment_hash(h128("shop"), "system", "shop")
    about = segment_hash(system, "user", query.partition(" of document ")[2])
    return (
        Segment(system, 400, "system"),
        Segment(about, 900, "user"),
        Segment(segment_hash(about, "user", query), 40, "user"),
    )


def segments(query: str, template: str) -> tuple[Segment, ...]:
    if " of document " in query:
        return document(query)
    system = segment_hash(h128(template), "system", template)
    return Segment(system, 400, "system"), Segment(segment_hash(system, "user", query), 40, "user")


def book(version: int = 1, **sections: dict[str, object]) -> PolicyBook:
    found = PolicyBook()
    put(found, version, **sections)
    return found


def put(policy: PolicyBook, version: int, **sections: dict[str, object]) -> None:
    for section, body in sections.items():
        policy.apply(Policy(scope="*", section=section, writer="test", version=version, at_ms=version, body=body))


def played(
    asked: list[Asking],
    policy: PolicyBook,
    encoder: FakeEncoder | None = None,
    adapters: Mapping[str, str] | None = None,
    replicas: int = 1,
) -> LocalJob:
    """A job that has seen all of it.

    Args:
        adapters: announced long ago, and asked for by the requests of a template.
    """
    job, next_sample_ms = LocalJob(JobSettings(), policy, encoder), 0
    adapters = adapters or {}
    for name in sorted(adapters.values()):
        job.on_record(encode(announced(*name.split("@"))), START_MS)
    for number, (at_ms, query, user, template) in enumerate(sorted(asked)):
        while next_sample_ms <= at_ms:
            sampled_ms = START_MS + next_sample_ms
            for name in (f"r{number}" for number in range(replicas)):
                sample = ReplicaSample(
                    replica=name, pool="gpu", incarnation="1", sampled_at_ms=sampled_ms, state="ready"
                )
                job.on_record(encode(sample), sampled_ms)
            next_sample_ms += 1_000
        event = RequestEvent(
            event_id=f"event-{number}", request_id=f"request-{number}", phase="started",
            occurred_at_ms=START_MS + at_ms, tenant="acme", user=user, pool="gpu", model="m", query=query,
            segments=segments(query, template), render=Render(template_sha=h128(template)),
            adapter=adapters.get(template),
        )  # fmt: skip
        job.on_record(encode(event), START_MS + at_ms)
    job.advance(START_MS + ENDS_MS + 5_000)
    return job


def announced(name: str, version: str) -> Announcement:
    at_ms = START_MS - 3_600_000
    return Announcement(
        announcement_id=announcement_id("default", "gpu", "adapter", name, version, at_ms), kind="adapter",
        scope="default", pool="gpu", name=name, version=version, at_ms=at_ms, announced_at_ms=START_MS,
        source=f"adapters/{name}",
    )  # fmt: skip


def focuses(job: LocalJob) -> list[Focus]:
    return [
        decode(record, Focus) for record in job.topics.insights if msgspec.json.decode(record)["schema"] == "focus/1"
    ]


def test_a_promotion_is_reported_at_its_first_slide_and_warmed_for_that_reason() -> None:
    chance = random.Random(1)
    crowd = list(promotion(chance))
    assert len({user for _, _, user, _ in crowd}) >= 100
    policy = book(budget={"embeddings_per_s": 0.0})
    job = played([*usual(chance), *crowd], policy, FakeEncoder())

    found = focuses(job)
    assert {insight.verdict for insight in found} == {"crowd"}
    assert {insight.rule for insight in found} == {"gathered"}
    by_dimension = {insight.dimension: insight for insight in reversed(found)}
    keys = {
        "query": query_sha256(PROMOTED),
        "template": h128("sale"),
        "prefix_family": segments(PROMOTED, "sale")[0].hash,
    }
    assert by_dimension.keys() == keys.keys()
    for dimension, key in keys.items():
        first = by_dimension[dimension]
        assert first.at_ms == START_MS + BEGINS_MS + PANE_MS
        assert [each.key for each in first.keys] == [key]
        assert first.evidence["users"] >= 30
        assert 0.02 < first.evidence["share"] < 0.08

    # Nothing could be paid until now; who has gathered goes first.
    put(policy, 2, budget={"embeddings_per_s": 4.0})
    job.topics.commands.clear()
    job.advance(START_MS + ENDS_MS + 20_000)
    commands = [decode(record, WarmupCommand) for record in job.topics.commands]
    embeddings = [command for command in commands if isinstance(command.target, Embedding)]
    first_command = max(embeddings, key=lambda command: command.priority)
    assert first_command.target.query_sha256 == query_sha256(PROMOTED)
    assert first_command.reason.trigger == "focus"
    assert first_command.reason.evidence["focus_users"] in {each.evidence["users"] for each in focuses(job)}
    assert first_command.reason.evidence["boost"] == 2.0
    assert "hot_query" in {command.reason.trigger for command in embeddings}


def test_a_crowd_on_an_adapter_loads_it_for_that_reason_as_explain_tells() -> None:
    chance = random.Random(1)
    asked = [*usual(chance), *promotion(chance)]
    # By its class an adapter would be loaded only for five uses in a minute, which is another reason.
    policy = book(plan={"qos": "best_effort"}, experiment={"hold_share": 0})
    job = played(asked, policy, adapters={"shop": "shop@1", "sale": "sale@1"})

    first = next(focus for focus in focuses(job) if focus.dimension == "adapter")
    assert (first.verdict, [each.key for each in first.keys]) == ("crowd", ["sale@1"])
    assert first.at_ms == START_MS + BEGINS_MS + PANE_MS
    commands = [decode(record, WarmupCommand) for record in job.topics.commands]
    loads = {command.target.name: command for command in commands if isinstance(command.target, Adapter)}
    assert {name: command.reason.trigger for name, command in loads.items()} == {
        "shop": "adapter_rate",
        "sale": "focus",
    }
    load = loads["sale"]
    assert (load.action, load.target, load.pool) == (
        "load",
        Adapter(name="sale", version="1", source="adapters/sale"),
        "gpu",
    )
    assert load.replicas.names == ("r0",)
    assert first.at_ms <= load.issued_at_ms <= first.at_ms + 2_000
    evidence = load.reason.evidence
    assert (evidence["focus_users"], evidence["boost"]) == (first.evidence["users"], 2.0)
    assert evidence["uses_in_minute"] == sum(template == "sale" for at_ms, *_, template in asked if at_ms < 80_000)

    story = tell(find(load.command_id, lambda: [load, *focuses(job)]))
    assert f"focus: a crowd gathers on it: {first.evidence['users']:.0f} users in" in story
    assert "; raised 2-fold; gathered saw it at" in story


def test_a_crowd_on_a_family_of_prompts_warms_what_they_share_for_that_reason() -> None:
    chance = random.Random(1)
    asked = by_document([*usual(chance), *readers(chance)], chance)
    # What readers of a document share takes 65 ms to prefill: so little that it is warmed only where it counts twice.
    policy = book(plan={"min_saved_ms": 70.0}, experiment={"hold_share": 0}, budget={"prefill_share": 0.5})
    job = played(asked, policy, replicas=60)

    found = focuses(job)
    family = document("? of document sale")[1].hash
    assert {(focus.dimension, focus.verdict, focus.keys[0].key) for focus in found} == {
        ("prefix_family", "crowd", family)
    }
    assert found[0].at_ms == START_MS + BEGINS_MS + PANE_MS
    commands = [decode(record, WarmupCommand) for record in job.topics.commands]
    assert commands
    assert {command.reason.trigger for command in commands} == {"focus"}
    first = commands[0]
    assert [segment.hash for segment in first.target.segments] == [
        each.hash for each in document("? of document sale")[:2]
    ]
    assert found[0].at_ms <= first.issued_at_ms <= found[0].at_ms + 12_000
    evidence = first.reason.evidence
    assert (evidence["focus_users"], evidence["boost"]) == (found[0].evidence["users"], 2.0)
    assert first.benefit.p_asked == 1.0
    story = tell(find(first.command_id, lambda: [first, *focuses(job)]))
    assert f"focus: a crowd gathers on it: {found[0].evidence['users']:.0f} users in" in story
    assert "; raised 2-fold" in story

    # Twice is what policy says.
    policy = book(plan={"min_saved_ms": 70.0}, experiment={"hold_share": 0}, focus={"boost": 1.0})
    assert played(asked, policy, replicas=60).topics.commands == []


def test_machines_are_named_and_nothing_is_warmed_for_them() -> None:
    chance = random.Random(2)
    job = played([*usual(chance), *crawler(chance), *replay(chance)], book())
    found = focuses(job)
    assert {insight.verdict for insight in found} == {"crawler"}
    triggers = {decode(record, WarmupCommand).reason.trigger for record in job.topics.commands}
    assert "focus" not in triggers


def test_where_the_policy_says_spec_the_tuned_rule_hears_nothing() -> None:
    chance = random.Random(1)
    asked = [each for each in [*usual(chance), *promotion(chance)] if each[0] >= BEGINS_MS - 2 * PANE_MS]
    assert focuses(played(asked, book(focus={"rule": "spec"}))) == []
