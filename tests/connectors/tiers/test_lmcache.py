"""LMCache's node: the fake answers as a real 0.5.6 did, and what the adapter makes of bad answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from connectors.engines import Salt
from connectors.tiers import Fetched, LmcacheNode
from connectors.tiers.fake import FakeNode
from schemas.errors import RefusedCommand, TransientFault

RECORDED: list[dict[str, Any]] = json.loads(Path(__file__).with_name("lmcache-0.5.6.json").read_text())["exchanges"]
MODEL = "/models/m"
PROMPT = list(range(600))
SECRET = "salt-of-acme"


def node(**settings: Any) -> tuple[FakeNode, LmcacheNode]:
    fake = FakeNode(**settings)
    fake.register(MODEL)
    return fake, LmcacheNode("http://node", transport=fake)


def sent(row: dict[str, Any]) -> Any:
    body = row["body"]
    if body and isinstance(body.get("token_ids"), dict):
        return body | {"token_ids": list(range(body["token_ids"]["range"]))}
    return body


def without_ids(answer: Any, *ids: str) -> str:
    text = json.dumps(answer)
    for each in ids:
        text = text.replace(each, "ID")
    return text


async def test_the_fake_answers_as_the_real_node_did() -> None:
    fake = FakeNode(looks_pending=0)
    ids: dict[str, str] = {}
    async with httpx.AsyncClient(base_url="http://node", transport=fake) as client:
        for row in RECORDED:
            if row["name"] == "below a chunk":
                fake.register(MODEL)
            if row["name"] == "stored":
                fake.store(MODEL, PROMPT)
            path = row["path"]
            for recorded, ours in ids.items():
                path = path.replace(recorded, ours)
            answer = await client.request(row["method"], path, json=sent(row))
            told = answer.json()
            if "request_id" in row["answer"] and row["method"] == "POST":
                ids[row["answer"]["request_id"]] = told["request_id"]
            assert answer.status_code == row["status"], row["name"]
            if row["status"] == 422:  # its own validator's words
                assert [each["loc"] for each in told["detail"]] == [each["loc"] for each in row["answer"]["detail"]]
                continue
            assert without_ids(told, *ids.values()) == without_ids(row["answer"], *ids), row["name"]
    assert {row["status"] for row in RECORDED} == {200, 202, 400, 404, 422, 503}


async def test_no_word_of_a_refusal_is_repeated() -> None:
    fake, tier = node(fault=httpx.Response(400, json={"detail": f"cache_salt must not contain x (got {SECRET!r})"}))
    with pytest.raises(RefusedCommand) as refused:
        await tier.fetch(MODEL, PROMPT, Salt(SECRET), timeout_s=5)
    assert SECRET not in str(refused.value)
    assert len(fake.requests) == 1


@pytest.mark.parametrize(
    "answer", [httpx.Response(500), httpx.Response(200, text="<html>"), httpx.Response(200, json=[])]
)
async def test_a_broken_answer_may_pass(answer: httpx.Response) -> None:
    _, tier = node(fault=answer)
    with pytest.raises(TransientFault):
        await tier.fetch(MODEL, PROMPT, None, timeout_s=5)


async def test_an_older_node_without_these_routes_refuses() -> None:
    _, tier = node(fault=httpx.Response(404, json={"detail": "Not Found"}))
    with pytest.raises(RefusedCommand, match="answered 404"):
        await tier.fetch(MODEL, PROMPT, None, timeout_s=5)


async def test_a_load_that_takes_too_long_is_given_up() -> None:
    fake, tier = node(looks_pending=1_000_000)
    fake.store(MODEL, PROMPT)
    with pytest.raises(TransientFault, match="had not fetched all within"):
        await tier.fetch(MODEL, PROMPT, None, timeout_s=0.2)


@pytest.mark.parametrize("salt", [None, Salt(SECRET)])
async def test_what_has_no_quota_is_not_fetched_where_that_would_evict_it(salt: Salt | None) -> None:
    name = "" if salt is None else salt.value
    fake, tier = node(eviction_policy="IsolatedLRU")
    fake.store(MODEL, PROMPT, name)
    with pytest.raises(RefusedCommand, match="no quota") as refused:
        await tier.fetch(MODEL, PROMPT, salt, timeout_s=5)
    assert SECRET not in str(refused.value)
    assert not fake.host
    fake.set_quota(name)
    assert await tier.fetch(MODEL, PROMPT, salt, timeout_s=5) == Fetched(whole=True, tokens=512)
    assert not any(SECRET in str(request.url) for request in fake.requests)


async def test_its_flags_are_asked_for_once() -> None:
    fake, tier = node()
    for _ in range(3):
        await tier.fetch(MODEL, PROMPT, None, timeout_s=5)
    assert sum(request.url.path == "/config" for request in fake.requests) == 1


async def test_the_ranks_are_part_of_the_key() -> None:
    fake = FakeNode()
    fake.register(MODEL, 2)
    fake.store(MODEL, PROMPT, world_size=2)
    assert (
        await LmcacheNode("http://node", world_size=2, transport=fake).fetch(MODEL, PROMPT, None, timeout_s=5)
    ).whole
    with pytest.raises(TransientFault, match="world size of 1"):
        await LmcacheNode("http://node", transport=fake).fetch(MODEL, PROMPT, None, timeout_s=5)
