"""Managed prompts in a GPU pool's plan: the hottest ones' prefixes are warmed, as a draw by hotness says (D7, spec).

A prompt is known by its requests or by its announcement. Its prefix is what all its requests begin with before a
user's own words. Once an interval each scope draws some of its hottest prompts; the draw is a pure function of scope,
pool and interval, so that a planner built anew makes the same.
"""

from __future__ import annotations

from analytics.commands import Draft
from analytics.copies import spread
from analytics.envelopes import Candidate, Root
from analytics.facts import ROLE_INDEX
from analytics.memory import TargetMemory
from analytics.plan_config import PlanConfig
from analytics.policy import PolicyBook
from analytics.prefix_nodes import HASH_BYTES
from analytics.prefix_places import places
from analytics.prefix_planning import PrefixPlanner, Solvent
from analytics.prompt_pool import DAY_MS, PromptPool, prompt_sample
from analytics.prompt_usage import PromptUse, prompt_id
from analytics.recent_scopes import RecentScopes
from analytics.records import Record, Section, pack, path, unpack
from analytics.replicas import Ready
from analytics.stores import MapStore
from analytics.worth import Worth, p_absent
from schemas import Announcement
from schemas.canonical import bucket, h64, prefix_key
from schemas.warmup_command import Qos

TRIGGER = "managed_prompt"
MAX_PROMPTS = 1_000
"""Managed prompts that a scope has in a pool; producers name them."""
QUIET_MS = 3_600_000
"""A scope whose managed prompts nobody used for so long draws none. Scaled."""
UNUSED_MS = 30 * DAY_MS
"""A prompt that nobody used for so long leaves the pool. Scaled."""


class LeadRecord(Record, frozen=True, array_like=True):
    """What all requests of a prompt begin with."""

    scope: str
    prompt: str
    root: Root
    hashes: bytes
    tokens: tuple[int, ...]
    roles: bytes


class EndRecord(Record, frozen=True, array_like=True):
    """A version that another one replaces, and when."""

    scope: str
    prompt: str
    at_ms: int


class DrawRecord(Record, frozen=True, array_like=True):
    """The interval of a scope's last draw."""

    scope: str
    bucket: int


class PromptPlanner:
    """Managed prompts of every scope in one GPU pool.

    Args:
        store: its records begin with `m`.
    """

    def __init__(
        self, config: PlanConfig, pool: str, memory: TargetMemory, prefixes: PrefixPlanner, store: MapStore
    ) -> None:
        self._config = config
        self._pool = pool
        self._memory = memory
        self._prefixes = prefixes
        self._leads, self._ends, self._draws = Section(store, "ml"), Section(store, "me"), Section(store, "md")
        self._recent = RecentScopes(config.scaled(QUIET_MS), Section(store, "mr"))
        self._prompts = PromptPool(MAX_PROMPTS, config.scaled(DAY_MS), Section(store, "mp"))
        self._lead: dict[tuple[str, str], LeadRecord] = {}
        self._end: dict[tuple[str, str], int] = {}
        self._drawn: dict[str, int] = {}

    def __bool__(self) -> bool:
        return bool(self._recent or self._prompts or self._end)

    @property
    def scopes(self) -> frozenset[str]:
        """Scopes that may draw."""
        return self._recent.names

    @property
    def busy(self) -> bool:
        """Whether a later tick may have something to do, though nothing more is heard."""
        return bool(self._recent or self._end)

    def on_announcement(self, message: Announcement) -> None:
        """Takes a new managed prompt, or one back; the version that it replaces leaves when it takes effect."""
        if message.kind != "prompt":
            return
        scope, prompt = message.scope, prompt_id(message.name, message.version)
        old = "" if message.replaces is None else prompt_id(message.name, message.replaces)
        if message.deleted:
            self._take_back(scope, prompt, old, message.at_ms)
            return
        if old:
            self._end[scope, old] = message.at_ms
            self._ends.put(path(scope, old), pack(EndRecord(1, scope, old, message.at_ms)))
        segments = message.segments
        if not segments or message.model is None:
            return
        render = message.render
        root = Root(message.model, "", render.template_sha, render.tools_sha, render.salt_ref or "")
        hashes = b"".join(bytes.fromhex(segment.hash) for segment in segments)
        roles = bytes(ROLE_INDEX[segment.role] for segment in segments)
        self._recent.heard(scope, message.at_ms)
        # Until it takes effect it is not in use; what comes shortly before is the business of announced changes.
        self._add(scope, prompt, message.at_ms, segments[-1].hash, message.tags)
        self._prompts.announced(scope, prompt, message.at_ms)
        self._learn(LeadRecord(1, scope, prompt, root, hashes, tuple(segment.tokens for segment in segments), roles))

    def on_use(self, use: PromptUse, policy: PolicyBook) -> None:
        """Counts what became of a prompt in a shard and slide."""
        self._recent.heard(use.scope, use.at_ms)
        self._add(use.scope, use.prompt, use.at_ms, use.hashes[-HASH_BYTES:].hex())
        if self._prompts.get(use.scope, use.prompt) is None:
            return  # a full pool keeps what is hotter
        ceiling = policy.prompt(use.scope).ceiling
        self._prompts.used(use.scope, use.prompt, use.at_ms, use.adopted, use.answered, ceiling)
        if use.hashes:
            self._learn(LeadRecord(1, use.scope, use.prompt, use.root, use.hashes, use.tokens, use.roles))

    def forget(self, at_ms: int) -> None:
        """Drops versions that were replaced, prompts that nobody uses any more, and scopes that are quiet."""
        self._recent.forget(at_ms)
        for unused in self._prompts.unused_since(at_ms - self._config.scaled(UNUSED_MS)):
            self._remove(*unused)
        for (scope, prompt), end_ms in list(self._end.items()):
            if end_ms <= at_ms:
                self._remove(scope, prompt)
                del self._end[scope, prompt]
                self._ends.remove(path(scope, prompt))
        for scope in [scope for scope in self._drawn if scope not in self._recent.names]:
            del self._drawn[scope]
            self._draws.remove(path(scope))

    def draws(self, at_ms: int, ready: Ready, policy: PolicyBook, solvent_ms: Solvent) -> dict[str, list[Draft]]:
        """What the draws of the present interval ask for, hottest first, by scope; `drawn` says that all was paid.

        Until then the same is asked for again: what a scope has just spent on something else must not cost a prompt
        its whole interval.

        Args:
            solvent_ms: when a scope can pay any of its prompts, of which the shortest fills a block: it draws none
                before.
        """
        found: dict[str, list[Draft]] = {}
        for scope in sorted(self._recent.names) if ready.names else ():
            plan, prompt, now = policy.plan(scope), policy.prompt(scope), self._interval(scope, at_ms, policy)
            if self._drawn.get(scope, -1) >= now or not prompt.enabled or not plan.prefixes or policy.frozen(scope):
                continue
            if solvent_ms(scope, float(ready.block_tokens)) > at_ms:
                continue
            drawn = self._draw(scope, now, prompt.top, prompt.draws, at_ms, ready)
            if not drawn:
                continue  # the interval's draw is still to come, when there is a prompt in use
            drafts = [self._draft(scope, name, hotness, now, at_ms, ready, policy) for name, hotness in drawn]
            found[scope] = [draft for draft in drafts if draft is not None]
        return found

    def drawn(self, scope: str, at_ms: int, policy: PolicyBook) -> None:
        """The scope has had its draws of the present interval."""
        now = self._interval(scope, at_ms, policy)
        self._drawn[scope] = now
        self._draws.put(path(scope), pack(DrawRecord(1, scope, now)))

    def restore(self, key: str, blob: bytes) -> None:
        """Takes back one record; `key` is its own without the leading `m`."""
        if key[0] == "p":
            self._prompts.restore(blob)
        elif key[0] == "r":
            self._recent.restore(blob)
        elif key[0] == "l":
            lead = unpack(blob, LeadRecord)
            self._lead[lead.scope, lead.prompt] = lead
        elif key[0] == "e":
            end = unpack(blob, EndRecord)
            self._end[end.scope, end.prompt] = end.at_ms
        else:
            drawn = unpack(blob, DrawRecord)
            self._drawn[drawn.scope] = drawn.bucket

    def _interval(self, scope: str, at_ms: int, policy: PolicyBook) -> int:
        return bucket(at_ms, self._config.scaled(policy.plan(scope).prefix_repeat_ms))

    def _draw(self, scope: str, now: int, top: int, draws: int, at_ms: int, ready: Ready) -> list[tuple[str, float]]:
        """Draws among the hottest prompts whose prefix fills a block; each prompt once, hottest first."""
        hottest = [
            (prompt, hotness)
            for prompt, hotness in self._prompts.hottest(scope, top, at_ms)
            if sum(self._tokens(scope, prompt)) >= ready.block_tokens
        ]
        if not hottest:
            return []
        weights = [hotness for _, hotness in hottest]
        spins = (h64(scope, self._pool, str(now), str(spin)) / 2**64 for spin in range(draws))
        drawn = {prompt_sample(weights, min(u, 1 - 2**-53)) for u in spins}
        return [hottest[index] for index in sorted(drawn)]

    def _draft(
        self, scope: str, prompt: str, hotness: float, now: int, at_ms: int, ready: Ready, policy: PolicyBook
    ) -> Draft | None:
        config, plan, lead = self._config, policy.plan(scope), self._lead[scope, prompt]
        key, tokens = prefix_key(lead.hashes[-HASH_BYTES:].hex()), sum(lead.tokens)
        fitting = places(ready, tokens, scope, lead.root.adapter, self._memory, at_ms)
        target, missing, attempt = self._memory.get(scope, key), fitting.names, 1
        if target is not None:
            missing = target.missing(fitting, at_ms + config.scaled(plan.lead_ms))
            if target.live(at_ms) or target.bucket >= now:
                return None
            attempt = target.next_attempt(now, at_ms)
        if not missing:
            return None
        names = spread(missing, plan.copies, key, ready.zone_of, fitting.but(missing))
        replicas = len(ready.names)
        unit = self._prefixes.family_of(scope, lead.root, lead.hashes)
        # Hotness does not tell how often a prompt is asked for: its part of the ceiling stands in for that.
        # Where nothing is known of a replica it is taken to lack the prompt.
        p_asked = min(1.0, hotness / policy.prompt(scope).ceiling)
        candidate = Candidate(0, lead.hashes, lead.tokens, lead.roles, unit, 0.0, p_asked, 0.0, at_ms)
        qos: Qos = plan.qos  # type: ignore[assignment]
        return Draft(
            scope=scope,
            key=key,
            source=(candidate, lead.root),
            unit=unit,
            bucket=now,
            attempt=attempt,
            life_ms=config.life_ms(plan.prefix_life_ms),
            repeat_ms=config.scaled(plan.prefix_repeat_ms),
            names=names,
            charge=float(tokens),
            worth=Worth(
                p_asked=p_asked,
                p_absent=p_absent(replicas - len(missing), len(missing), 1.0),
                saved_ms=tokens / (policy.budget().prefill_tokens_per_s * config.time_scale) * 1000,
                cost=float(tokens * len(names)),
            ),
            trigger=TRIGGER,
            qos=qos,
            tokens=tokens,
            evidence={"hotness": hotness, "replicas_missing": float(len(missing))},
        )

    def _add(self, scope: str, prompt: str, at_ms: int, ref: str, tags: tuple[str, ...] = ()) -> None:
        for gone in self._prompts.add(scope, prompt, at_ms, ref, tags):
            self._forget_lead(scope, gone)

    def _learn(self, new: LeadRecord) -> None:
        """What requests with one rendering have in common; another rendering starts anew."""
        if self._prompts.get(new.scope, new.prompt) is None:
            return
        held = self._lead.get((new.scope, new.prompt))
        if held is not None and held.root == new.root:
            count = 0
            for ours, theirs in zip(_hashes(held.hashes), _hashes(new.hashes), strict=False):
                if ours != theirs:
                    break
                count += 1
            if count == len(held.tokens):
                return
            new = LeadRecord(
                1,
                held.scope,
                held.prompt,
                held.root,
                held.hashes[: count * HASH_BYTES],
                held.tokens[:count],
                held.roles[:count],
            )
        self._lead[new.scope, new.prompt] = new
        self._leads.put(path(new.scope, new.prompt), pack(new))

    def _tokens(self, scope: str, prompt: str) -> tuple[int, ...]:
        lead = self._lead.get((scope, prompt))
        return lead.tokens if lead is not None else ()

    def _take_back(self, scope: str, prompt: str, old: str, at_ms: int) -> None:
        """An announcement for a time is taken back; one that was made later for another time stands."""
        held = self._prompts.get(scope, prompt)
        if held is not None and held.announced_ms in (0, at_ms):
            self._remove(scope, prompt)
        if self._end.get((scope, old)) == at_ms:
            del self._end[scope, old]
            self._ends.remove(path(scope, old))

    def _remove(self, scope: str, prompt: str) -> None:
        self._prompts.remove(scope, prompt)
        self._forget_lead(scope, prompt)

    def _forget_lead(self, scope: str, prompt: str) -> None:
        if self._lead.pop((scope, prompt), None) is not None:
            self._leads.remove(path(scope, prompt))


def _hashes(joined: bytes) -> list[bytes]:
    return [joined[at : at + HASH_BYTES] for at in range(0, len(joined), HASH_BYTES)]
