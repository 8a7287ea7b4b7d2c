"""The contracts: one file per message, the canonical forms of hashes and ids, the topics and the error tree.

Nothing here decides anything; every other package may import it, and it imports none of them.
"""

from schemas.announcement import Announcement
from schemas.canonical import Arm
from schemas.codec import MESSAGES, Message, Reader, decode, encode
from schemas.dead_letter import DeadLetter, letter_of
from schemas.errors import (
    BrokenConfiguration,
    DeadReason,
    PoisonMessage,
    RefusedCommand,
    StackFault,
    StokerError,
    TransientFault,
)
from schemas.insights import (
    Accounting,
    Alternative,
    Cluster,
    Focus,
    KeyRate,
    Pattern,
    PlannerState,
    PrefixState,
    Score,
    TopKey,
    WindowStats,
)
from schemas.policy import EVERY_SCOPE, Policy
from schemas.replica_sample import ReplicaSample, ResidentAdapter
from schemas.request_event import CacheReport, PromptRef, Reasoning, ReasoningStep, Render, RequestEvent, Segment
from schemas.residency import Residency
from schemas.reward_event import RewardEvent
from schemas.topics import TOPICS, Topic, topic_name
from schemas.warmup_command import (
    Adapter,
    Benefit,
    Cancel,
    Cost,
    Embedding,
    Model,
    Prefix,
    Reason,
    Replicas,
    Response,
    Target,
    Value,
    WarmupCommand,
)
from schemas.warmup_outcome import OutcomeReason, WarmupOutcome

__all__ = [
    "EVERY_SCOPE",
    "MESSAGES",
    "TOPICS",
    "Accounting",
    "Adapter",
    "Alternative",
    "Announcement",
    "Arm",
    "Benefit",
    "BrokenConfiguration",
    "CacheReport",
    "Cancel",
    "Cluster",
    "Cost",
    "DeadLetter",
    "DeadReason",
    "Embedding",
    "Focus",
    "KeyRate",
    "Message",
    "Model",
    "OutcomeReason",
    "Pattern",
    "PlannerState",
    "PoisonMessage",
    "Policy",
    "Prefix",
    "PrefixState",
    "PromptRef",
    "Reader",
    "Reason",
    "Reasoning",
    "ReasoningStep",
    "RefusedCommand",
    "Render",
    "ReplicaSample",
    "Replicas",
    "RequestEvent",
    "Residency",
    "ResidentAdapter",
    "Response",
    "RewardEvent",
    "Score",
    "Segment",
    "StackFault",
    "StokerError",
    "Target",
    "TopKey",
    "Topic",
    "TransientFault",
    "Value",
    "WarmupCommand",
    "WarmupOutcome",
    "WindowStats",
    "decode",
    "encode",
    "letter_of",
    "topic_name",
]
