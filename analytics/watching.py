"""What ingest tells beyond the fact, for scopes that asked for it: prompts of sessions, and uses of managed prompts.

It reads the request's fact again instead of the event where it can, so that both say the same. A scope that asked for
nothing costs one look-up.
"""

from __future__ import annotations

import hashlib
import unicodedata
from dataclasses import dataclass

from analytics.envelopes import Tag, seal
from analytics.facts import HEAD, SEGMENT_BYTES, Flag, shard_of
from analytics.patterns import packed_sketch
from analytics.prompt_usage import Prompted, answered, lead_of, prompt_id
from analytics.turns import Turn
from schemas.policy import EVERY_SCOPE
from schemas.request_event import RequestEvent
from schemas.reward_event import RewardEvent

_DEMAND = Flag.DEMAND.value
_SHOWN = Flag.TEXT.value | Flag.TEXT_TOO_LONG.value


@dataclass(frozen=True)
class WatchConfig:
    """Scopes by name; `*` stands for every scope.

    Attributes:
        patterns: whose sessions are looked at for consecutive like prompts.
        prompts: whose managed prompts have a hotness.
    """

    patterns: frozenset[str] = frozenset()
    prompts: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.patterns or self.prompts)


class Watch:
    """Makes the envelopes; keeps nothing between them."""

    def __init__(self, config: WatchConfig) -> None:
        self._patterns = config.patterns
        self._prompts = config.prompts
        self._scopes = config.patterns | config.prompts
        self._every = EVERY_SCOPE in self._scopes

    def request(self, event: RequestEvent, scope: str, fact: bytes) -> tuple[bytes, ...]:
        """TURN and PROMPTED envelopes of a request, of which most have neither."""
        if scope not in self._scopes and not self._every:
            return ()
        patterns, prompts = self._wants(self._patterns, scope), self._wants(self._prompts, scope)
        _, _, flags, at_ms, identity, _, query, _, names_bytes, segments, _ = HEAD.unpack_from(fact)
        if not flags & _DEMAND:
            return ()
        chain_at = HEAD.size + names_bytes
        names = fact[HEAD.size : chain_at]
        chain = fact[chain_at : chain_at + segments * SEGMENT_BYTES]
        found = []
        who = event.session or event.user
        if patterns and who is not None and event.query is not None and flags & _SHOWN:
            found.append(_turn(event, scope, who, identity, min(event.occurred_at_ms, at_ms), names, chain))
        if prompts and event.prompt is not None and event.phase == "finished":
            prompt = prompt_id(event.prompt.name, event.prompt.version)
            use = Prompted(scope, prompt, query, at_ms, identity, answered(event), False, names, lead_of(chain))
            found.append(seal(Tag.PROMPTED, str(shard_of(fact)), use))
        return tuple(found)

    def reward(self, event: RewardEvent, scope: str, fact: bytes) -> tuple[bytes, ...]:
        """A PROMPTED envelope of a judgement that says an answer was adopted."""
        if event.source != "adopted" or event.reward <= 0 or not self._wants(self._prompts, scope):
            return ()
        _, _, _, at_ms, identity, _, query, *_ = HEAD.unpack_from(fact)
        adopted = Prompted(scope, "", query, at_ms, identity, False, True, b"", b"")
        return (seal(Tag.PROMPTED, str(shard_of(fact)), adopted),)

    @staticmethod
    def _wants(scopes: frozenset[str], scope: str) -> bool:
        return scope in scopes or EVERY_SCOPE in scopes


def _turn(
    event: RequestEvent, scope: str, who: str, identity: int, arrived_ms: int, names: bytes, chain: bytes
) -> bytes:
    assert event.query is not None
    kind = "user" if event.session is None else "session"
    subject = hashlib.sha256(f"{event.tenant}\0{kind}\0{who}".encode()).digest()[:16]
    text = event.query if event.query.isascii() else unicodedata.normalize("NFC", event.query)
    words, distinct = packed_sketch(text, subject)
    turn = Turn(
        scope,
        subject.hex(),
        identity,
        arrived_ms,
        names,
        chain,
        words,
        distinct,
        event.input_tokens,
        event.latency_ms or 0.0,
    )
    return seal(Tag.TURN, subject.hex(), turn)
