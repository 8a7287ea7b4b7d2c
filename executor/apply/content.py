"""The text of a prefix: fetched by scope and hash, and believed only if the whole chain of hashes agrees."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from connectors.engines.base import ChatMessage, Messages, Prompt, Tokens
from connectors.redis.base import AsyncBlobs
from connectors.redis.keys import blob_key
from executor.outcomes import Ending
from schemas import OutcomeReason, PoisonMessage, Prefix, Segment, StackFault, TransientFault
from schemas.canonical import h128, root_hash, segment_hash

MAX_TOKEN_ID = 2**32 - 1


STORE_FAULTS = (TransientFault, StackFault)
"""What a Redis raises that does not serve. One that answers what it should not may be on its way down or up, so it is
asked again too; if it stays so, the command ends as `store_unavailable` and says what came."""


class StoreFault(TransientFault):
    """Redis did not give what an apply needs. `reason` is how the command ends when patience does."""

    reason = OutcomeReason.STORE_UNAVAILABLE


class SourceFault(StoreFault):
    """The source of a business value did not answer."""

    reason = OutcomeReason.LOADER_UNAVAILABLE


class Unusable(Exception):
    """The content of a prefix cannot be used; `ending` is how its command ends."""

    def __init__(self, ending: Ending) -> None:
        super().__init__(ending.reason)
        self.ending = ending


def _skipped(reason: OutcomeReason, error: str) -> Unusable:
    return Unusable(Ending("skipped", reason, error=error))


async def prompt_of(blobs: AsyncBlobs, scope: str, target: Prefix) -> Prompt:
    """The prompt that a Prefix names, out of the blobs of its scope.

    Raises:
        Unusable: something is missing, or is not what its hash says.
        StoreFault: Redis does not answer.
    """
    hashes = [_hash_within(scope, segment) for segment in target.segments]
    tools_sha = target.render.tools_sha
    try:
        found = await blobs.get(scope, [*hashes, *([tools_sha] if tools_sha else [])])
    except STORE_FAULTS as fault:
        raise StoreFault(str(fault)) from fault
    except PoisonMessage as error:
        raise _skipped(OutcomeReason.CONTENT_MISMATCH, str(error)) from error
    texts = _texts(hashes, found)
    verify_chain(target, texts)
    if target.segment_kind == "token_block":
        return Tokens(_token_ids(texts))
    return Messages(_messages(target, texts), _tools(tools_sha, found))


def _hash_within(scope: str, segment: Segment) -> str:
    """The hash that a segment's content lies under. A reference out of the scope is not followed (DESIGN §4)."""
    reference = segment.content_ref
    if reference is None:
        return segment.hash
    root = blob_key(scope, "-")[:-1]
    if not reference.startswith(root) or len(reference) == len(root):
        raise _skipped(OutcomeReason.CONTENT_MISMATCH, "content_ref leads out of the command's scope")
    return reference[len(root) :]


def _texts(hashes: Sequence[str], found: Mapping[str, bytes]) -> list[str]:
    missing = sum(name not in found for name in hashes)
    if missing:
        raise _skipped(OutcomeReason.CONTENT_MISSING, f"{missing} of {len(hashes)} segments are not stored")
    try:
        return [found[name].decode() for name in hashes]
    except UnicodeDecodeError:
        raise _skipped(OutcomeReason.CONTENT_MISMATCH, "a segment is not UTF-8") from None


def verify_chain(target: Prefix, texts: Sequence[str]) -> None:
    """Checks that these texts are the segments that the target names.

    Raises:
        Unusable: content_mismatch with the index of the first that is not.
    """
    parent = root_hash(target.model, target.adapter, target.render.template_sha, target.render.tools_sha)
    for index, (segment, text) in enumerate(zip(target.segments, texts, strict=True)):
        parent = segment_hash(parent, segment.role, text)
        if parent != segment.hash:
            raise _skipped(OutcomeReason.CONTENT_MISMATCH, f"segment {index} does not have the hash it is named by")


def _messages(target: Prefix, texts: Sequence[str]) -> tuple[ChatMessage, ...]:
    if any(segment.role == "block" for segment in target.segments):
        raise _skipped(OutcomeReason.CONTENT_MISMATCH, "a token block among messages")
    return tuple(
        ChatMessage(role=segment.role, content=text) for segment, text in zip(target.segments, texts, strict=True)
    )


def _tools(tools_sha: str, found: Mapping[str, bytes]) -> tuple[Mapping[str, Any], ...]:
    """The tool definitions: a JSON list, stored under the h128 of its text."""
    if not tools_sha:
        return ()
    body = found.get(tools_sha)
    if body is None:
        raise _skipped(OutcomeReason.CONTENT_MISSING, "the tool definitions are not stored")
    try:
        text = body.decode()
        tools = json.loads(text)
    except ValueError:
        raise _skipped(OutcomeReason.CONTENT_MISMATCH, "the tool definitions are not JSON") from None
    if h128(text) != tools_sha or not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise _skipped(OutcomeReason.CONTENT_MISMATCH, "the tool definitions are not what tools_sha names")
    return tuple(tools)


def _token_ids(texts: Sequence[str]) -> tuple[int, ...]:
    try:
        ids = tuple(int(word) for text in texts for word in text.split())
    except ValueError:
        raise _skipped(OutcomeReason.TEXT_WITHHELD, "token blocks hold block ids and no token ids") from None
    if ids and not 0 <= min(ids) <= max(ids) <= MAX_TOKEN_ID:
        raise _skipped(OutcomeReason.CONTENT_MISMATCH, "a token block holds a number that is no token id")
    return ids
