"""RewardEvent: how good an answer was (topic llm.rewards)."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from schemas.fields import Hash, Id, Ms, Name, Share

RewardSource = Literal["reward_model", "judge", "click", "dwell", "conversion", "adopted"]


class RewardEvent(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="schema", tag="reward_event/1"):
    """A judgement in [0, 1] on the answer to a query. It may come before the request that it judges."""

    event_id: Id
    occurred_at_ms: Ms
    tenant: Id
    query_sha256: Hash
    response_sha256: Hash | None = None
    request_id: Id | None = None
    reward: Share
    source: RewardSource
    reward_model_version: Name

    @property
    def event_time_ms(self) -> int:
        """When the judgement was made."""
        return self.occurred_at_ms
