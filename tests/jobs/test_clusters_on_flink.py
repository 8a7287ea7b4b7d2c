"""Like questions become a cluster in the running job: encoder and scikit-learn in a TaskManager of real Flink."""

from __future__ import annotations

import time
import uuid

import pytest

from analytics.cluster_radius import MINILM_INT8_FINGERPRINT, WIDEST_EPS
from schemas import RequestEvent, encode
from schemas.canonical import query_sha256
from tests.jobs.deployment import Deployment, now_ms

pytestmark = [pytest.mark.service, pytest.mark.slow]


def test_like_questions_become_a_cluster_with_its_mass(deployment: Deployment) -> None:
    deployment.at(1)
    name = uuid.uuid4().hex[:8]
    texts = [f"how do I reset the PIN of my card, ticket {name} {number}" for number in range(6)]
    queries = {query_sha256(text) for text in texts}

    def ask_all() -> None:
        for text in texts:
            for user in ("ann", "bob"):
                at_ms, event = now_ms(), uuid.uuid4().hex
                asked = RequestEvent(
                    event_id=event, request_id=event, phase="started", occurred_at_ms=at_ms, tenant="t", user=user,
                    pool="gpu", model="m", query=text,
                )  # fmt: skip
                deployment.send(encode(asked), at_ms=at_ms)
        deployment.flush()

    asked_s = 0.0

    def whole_cluster() -> bool:
        nonlocal asked_s
        if time.monotonic() > asked_s + 3:  # what came too late to be embedded is embedded with a later round
            ask_all()
            asked_s = time.monotonic()
        found = [each for each in deployment.outputs.clusters if queries <= set(each.members)]
        return any(each.mass >= 2 * len(texts) for each in found)

    deployment.wait(whole_cluster, "the cluster of all six, with its requests")
    last = next(each for each in reversed(deployment.outputs.clusters) if queries <= set(each.members))
    assert last.medoid in last.members
    assert (last.scope, last.rule, last.fingerprint) == ("default", "tuned", MINILM_INT8_FINGERPRINT)
    assert last.eps == WIDEST_EPS[MINILM_INT8_FINGERPRINT]
    ids = {each.cluster_id for each in deployment.outputs.clusters if queries & set(each.members)}
    assert len(ids) == 1
    deployment.settle()
