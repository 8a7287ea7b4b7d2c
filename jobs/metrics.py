"""The metrics of the jobs, as Flink's Prometheus reporter shows them: every name once, with its meaning.

Prometheus sees them as `flink_taskmanager_job_task_operator_<name>`, with job, operator and subtask as labels. They
count since the process started; what must be exact is in the insights.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

DEAD_LETTERS = "stoker_dead_letters"
EMBED_REQUESTS = "stoker_embed_requests"
EMBEDDED = "stoker_embedded"
EMBEDS_DROPPED = "stoker_embeds_dropped"
COMMANDS = "stoker_commands"
FACTS = "stoker_facts"
DEMAND = "stoker_demand"
"""Prefix of the counters of the demand shards."""

METRICS: Mapping[str, str] = MappingProxyType(
    {
        DEAD_LETTERS: "Records that went to warmup.dlq.",
        EMBED_REQUESTS: "Queries that demand asked to embed.",
        EMBEDDED: "Queries whose text and vector were stored in Redis.",
        EMBEDS_DROPPED: "Queries that were not embedded: repeated in a batch, stale, or refused by Redis.",
        COMMANDS: "Commands, both arms, by label kind.",
        FACTS: "Facts that the demand shards took: records of llm.requests and of llm.rewards.",
        f"{DEMAND}_counted": "Requests counted as demand.",
        f"{DEMAND}_second_phase": "Further phases of a request that was counted.",
        f"{DEMAND}_not_demand": "Records of warm-ups, probes, evaluations and batches.",
        f"{DEMAND}_late": "Requests too late for their pane.",
        f"{DEMAND}_duplicate": "Records seen before.",
        f"{DEMAND}_dead": "Records of llm.requests that could not be read.",
        f"{DEMAND}_reward": "Rewards.",
        f"{DEMAND}_reward_joined": "Rewards that found the request that they judge, at once or while they waited.",
        f"{DEMAND}_reward_unmatched": "Rewards whose request did not come in time.",
        f"{DEMAND}_reward_repeated": "Rewards seen before.",
        f"{DEMAND}_reward_lost": "Rewards beyond the bounds on what a shard takes in a slide and on what waits.",
        f"{DEMAND}_answers_kept": "Answers remembered for rewards to come.",
        f"{DEMAND}_answers_lost": "Answers beyond the bound on what a shard takes between two slides.",
        f"{DEMAND}_embed_asked": "Second sights that asked for an embedding.",
        f"{DEMAND}_embed_over_rate": "Second sights beyond the token bucket.",
        f"{DEMAND}_embed_withheld": "Second sights whose text is withheld.",
        f"{DEMAND}_embed_too_long": "Second sights whose text is longer than a fact carries.",
        f"{DEMAND}_embed_sampled": "First sights whose vector clusters get.",
        f"{DEMAND}_chains_dropped": "Prefix chains beyond the bound of a delta.",
        f"{DEMAND}_capped": "Totals that were published although a cap made them inexact.",
    }
)
