"""JSON Schemas of the topics, as a registry wants them, and the check that a change breaks no reader.

One file a topic, `<topic>-value.json`, lies in `schemas/json`. `stoker schema export` writes them and
`stoker schema check` compares them with the code: a field may only be added, with a default, within a major version.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from schemas.announcement import Announcement
from schemas.dead_letter import DeadLetter
from schemas.insights import Accounting, Cluster, Focus, Pattern, PlannerState, PrefixState, Score, WindowStats
from schemas.policy import Policy
from schemas.replica_sample import ReplicaSample
from schemas.request_event import RequestEvent
from schemas.residency import Residency
from schemas.reward_event import RewardEvent
from schemas.topics import (
    ANNOUNCEMENTS,
    COMMANDS,
    DEAD_LETTERS,
    INSIGHTS,
    OUTCOMES,
    POLICY,
    REQUESTS,
    RESIDENCY,
    REWARDS,
    TELEMETRY,
    Topic,
)
from schemas.warmup_command import WarmupCommand
from schemas.warmup_outcome import WarmupOutcome

EXPORTED = Path(__file__).parent / "json"

CONTENT: dict[Topic, tuple[type[msgspec.Struct], ...]] = {
    REQUESTS: (RequestEvent,),
    REWARDS: (RewardEvent,),
    TELEMETRY: (ReplicaSample,),
    COMMANDS: (WarmupCommand,),
    OUTCOMES: (WarmupOutcome,),
    RESIDENCY: (Residency,),
    POLICY: (Policy,),
    ANNOUNCEMENTS: (Announcement,),
    INSIGHTS: (WindowStats, Accounting, Focus, Cluster, Score, Pattern, PlannerState, PrefixState),
    DEAD_LETTERS: (DeadLetter,),
}
"""The messages of each topic. Topics of later issues have none yet."""


def json_schema(topic: Topic) -> dict[str, Any]:
    """The JSON Schema (2020-12) of a topic's values; the class of a field stands in `x-class`."""
    kinds = CONTENT[topic]
    references, components = msgspec.json.schema_components(kinds, ref_template="#/$defs/{name}")
    body: dict[str, Any] = dict(references[0]) if len(references) == 1 else {"oneOf": list(references)}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"{topic.name}-value",
        **body,
        "$defs": components,
    }


def render(schema: dict[str, Any]) -> bytes:
    """Stable text of a schema: keys sorted, two blanks, a newline at the end."""
    return msgspec.json.format(msgspec.json.encode(schema, order="sorted"), indent=2) + b"\n"


def export(folder: Path = EXPORTED) -> list[Path]:
    """Writes the schema of every topic that has messages. Returns the files."""
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for topic in CONTENT:
        file = folder / f"{topic.name}-value.json"
        file.write_bytes(render(json_schema(topic)))
        files.append(file)
    return files


def breaks(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """What in `new` would break a reader or writer of `old`, one sentence each; empty when nothing does."""
    found = []
    for name, before in old.get("$defs", {}).items():
        after = new.get("$defs", {}).get(name)
        if after is None:
            found.append(f"{name} is gone")
            continue
        found += _field_breaks(name, before, after)
    return found


def _field_breaks(name: str, before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    found = []
    fields, now = before.get("properties", {}), after.get("properties", {})
    for field, shape in fields.items():
        if field not in now:
            found.append(f"{name}.{field} is gone: keep it, or publish a new major version")
        elif _narrowed(shape, now[field]):
            found.append(f"{name}.{field} accepts less than before or something else")
    for field in after.get("required", ()):
        if field not in before.get("required", ()):
            found.append(f"{name}.{field} became required: give it a default")
    values = set(before.get("enum", ()))
    if values - set(after.get("enum", values)):
        found.append(f"{name} lost the values {sorted(values - set(after['enum']))}")
    return found


def _narrowed(before: dict[str, Any], after: dict[str, Any]) -> bool:
    shape = {key: before.get(key) for key in ("type", "$ref", "const")}
    if shape != {key: after.get(key) for key in ("type", "$ref", "const")}:
        return True
    if set(before.get("enum", ())) - set(after.get("enum", before.get("enum", ()))):
        return True
    tighter_low = any(
        after.get(k, before.get(k)) != before.get(k) and _above(after.get(k), before.get(k)) for k in _LOWS
    )
    tighter_high = any(
        after.get(k, before.get(k)) != before.get(k) and _above(before.get(k), after.get(k)) for k in _HIGHS
    )
    variants = len(before.get("anyOf", ())) > len(after.get("anyOf", ()))
    return tighter_low or tighter_high or variants


_LOWS = ("minimum", "exclusiveMinimum", "minLength", "minItems")
_HIGHS = ("maximum", "exclusiveMaximum", "maxLength", "maxItems")


def _above(left: float | None, right: float | None) -> bool:
    if left is None:
        return False
    return right is None or left > right
