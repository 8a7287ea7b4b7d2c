"""The semantic cache on a real Redis with search: written in one step, found through its index, swept by its end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

import redis.asyncio
from redis import exceptions

from connectors.redis.base import Vector
from connectors.redis.client import lua, sorted_faults
from connectors.redis.keys import is_semantic_cache, revoked_key, semantic_cache_name
from connectors.redis.semantic import NEAR_LOOKED_AT, SAME_QUERY_DISTANCE, Answer, CacheName, HeldAnswer, Put
from connectors.redis.semantic_layout import END, READ_FIELDS, TAGS, entry_of, held_of, index_arguments
from connectors.redis.vectors import vector_bytes
from schemas.canonical import h128
from schemas.errors import RefusedCommand

REVOKED_MS = 24 * 3_600_000
"""Far longer than a command can wait."""
MOST_FOUND = 1_000


def _absent(fault: exceptions.ResponseError) -> bool:
    text = str(fault).lower()
    return "no such index" in text or "unknown index" in text


@contextmanager
def _searching(doing: str) -> Iterator[None]:
    """As `sorted_faults`; a Redis without search, or an index of another kind, refuses instead of failing."""
    with sorted_faults(doing):
        try:
            yield
        except exceptions.ResponseError as fault:
            text = str(fault).lower()
            if "unknown command" in text:
                raise RefusedCommand(f"Redis, {doing}: it has no search module", "unsupported") from fault
            if "unknown field" in text or "unknown argument" in text or "property" in text:
                raise RefusedCommand(
                    f"Redis, {doing}: the index lacks our fields ({fault})", "index_mismatch"
                ) from fault
            raise


class RedisSemanticCache:
    """`SemanticCache` on a real Redis.

    Args:
        now_ms: the clock that `inserted_at` is read from.
    """

    def __init__(self, client: redis.asyncio.Redis, *, now_ms: Callable[[], int]) -> None:
        self._client = client
        self._now_ms = now_ms
        self._put = client.register_script(lua("semantic_put"))
        self._revoke = client.register_script(lua("semantic_revoke"))
        self._sweep = client.register_script(lua("semantic_sweep"))
        self._dimensions: dict[str, int] = {}

    async def put(self, name: CacheName, answer: Answer) -> Put:
        """Writes an answer; see `SemanticCache.put`."""
        entry = entry_of(name, answer, self._now_ms())
        await self._assure_index(name, answer.vector.size)
        before = [held for held in await self.find(name, answer.query_sha256) if held.same_place(answer)]
        if any(held.issued_at_ms > answer.issued_at_ms for held in before):
            return "resident"
        marks = [_revoked(name, answer.query_sha256, sha) for sha in (None, h128(answer.response))]
        flat = [item for pair in entry.fields.items() for item in pair]
        with sorted_faults("writing an answer"):
            written = await self._put(
                keys=[entry.key, *marks], args=[answer.until_ms, answer.issued_at_ms, answer.response, *flat]
            )
            result = cast(Put, written.decode())
            stale = [held.key for held in before if held.key != entry.key]
            if result != "revoked" and stale:
                await self._client.delete(*stale)
        return result

    async def find(self, name: CacheName, query: str) -> list[HeldAnswer]:
        """The entries of one query; see `SemanticCache.find`."""
        return await self._search(name, f"@query_sha256:{{{query}}} @source:{{warmup}}", {}, MOST_FOUND)

    async def nearest(self, name: CacheName, vector: Vector, distance: float, count: int = 1) -> list[HeldAnswer]:
        """What a gateway would be given; see `SemanticCache.nearest`."""
        query = "@prompt_vector:[VECTOR_RANGE $distance $vector]=>{$YIELD_DISTANCE_AS: vector_distance}"
        params: dict[str, str | bytes] = {"distance": str(distance), "vector": vector_bytes(vector, "vector")}
        return await self._search(name, query, params, count, ("SORTBY", "vector_distance", "ASC"))

    async def revoke(
        self, name: CacheName, query: str, at_ms: int, response_sha256: str | None = None, vector: Vector | None = None
    ) -> int:
        """Takes answers out; see `SemanticCache.revoke`."""
        with sorted_faults("revoking an answer"):
            await self._revoke(keys=[_revoked(name, query, response_sha256)], args=[at_ms, REVOKED_MS])
        held = {entry.key: entry for entry in await self.find(name, query)}
        if vector is not None:
            near = await self.nearest(name, vector, SAME_QUERY_DISTANCE, NEAR_LOOKED_AT)
            held |= {entry.key: entry for entry in near if entry.query_sha256 == query}
        bad = [key for key, entry in held.items() if response_sha256 in (None, entry.response_sha256)]
        if not bad:
            return 0
        with sorted_faults("removing answers"):
            return int(await self._client.delete(*bad))

    async def sweep(self, now_ms: int) -> int:
        """Takes out what has ended; see `SemanticCache.sweep`."""
        with _searching("listing indexes"):
            listed: Any = await self._client.execute_command("FT._LIST")  # type: ignore[no-untyped-call]
        names = [text for name in listed if is_semantic_cache(text := name.decode(errors="replace"))]
        removed = 0
        while names:
            due = await self._due(names, now_ms)
            keys = [key for found in due.values() for key in found]
            if keys:
                with sorted_faults("sweeping answers"):
                    async with self._client.pipeline(transaction=False) as pipe:
                        for key in keys:
                            await self._sweep(keys=[key], args=[now_ms], client=pipe)
                        removed += sum(await pipe.execute())
            names = [name for name, found in due.items() if len(found) == MOST_FOUND]
        return removed

    async def _due(self, names: Sequence[str], now_ms: int) -> dict[str, list[bytes]]:
        """Keys whose end has come, by index. An index of somebody else that lacks our fields holds none of ours."""
        with sorted_faults("looking for ended answers"):
            async with self._client.pipeline(transaction=False) as pipe:
                for name in names:
                    query = f"@source:{{warmup}} @{END}:[-inf {now_ms}]"
                    pipe.execute_command("FT.SEARCH", name, query, "NOCONTENT", "LIMIT", 0, MOST_FOUND, "DIALECT", 2)
                answers = await pipe.execute(raise_on_error=False)
            for answer in answers:
                if isinstance(answer, Exception) and not isinstance(answer, exceptions.ResponseError):
                    raise answer
        return {name: answer[1:] for name, answer in zip(names, answers, strict=True) if isinstance(answer, list)}

    async def _search(
        self, name: CacheName, query: str, params: Mapping[str, str | bytes], count: int, order: Sequence[str] = ()
    ) -> list[HeldAnswer]:
        index = semantic_cache_name(name.scope, name.cache, name.fingerprint)
        given = [item for pair in params.items() for item in pair]
        arguments: list[Any] = ["RETURN", len(READ_FIELDS), *READ_FIELDS, *order, "LIMIT", 0, count]
        arguments += ["PARAMS", len(given), *given] if given else []
        with _searching("looking for answers"):
            try:
                found: Any = await self._client.execute_command(  # type: ignore[no-untyped-call]
                    "FT.SEARCH", index, query, *arguments, "DIALECT", 2
                )
            except exceptions.ResponseError as fault:
                if not _absent(fault):
                    raise
                self._dimensions.pop(index, None)
                return []
        entries = []
        for key, fields in zip(found[1::2], found[2::2], strict=True):
            if fields is None:
                continue  # it ended between being found and being read
            pairs = {n.decode(): value for n, value in zip(fields[::2], fields[1::2], strict=True)}
            entries.append(held_of(key.decode(), pairs))
        return entries

    async def _assure_index(self, name: CacheName, dimension: int) -> None:
        """Creates the index where there is none, in RedisVL's form.

        Raises:
            RefusedCommand: there is one that cannot hold such entries.
        """
        index = semantic_cache_name(name.scope, name.cache, name.fingerprint)
        if index not in self._dimensions:
            with _searching("creating an index"):
                try:
                    await self._client.execute_command(  # type: ignore[no-untyped-call]
                        "FT.CREATE", *index_arguments(index, dimension)
                    )
                    self._dimensions[index] = dimension
                except exceptions.ResponseError as fault:
                    if "already exists" not in str(fault).lower():
                        raise
                    self._dimensions[index] = await self._dimension_of(index)
        if self._dimensions[index] != dimension:
            raise RefusedCommand(
                f"{index} holds vectors of {self._dimensions[index]} numbers, not {dimension}", "index_mismatch"
            )

    async def _dimension_of(self, index: str) -> int:
        told: Any = await self._client.execute_command("FT.INFO", index)  # type: ignore[no-untyped-call]
        info = dict(zip(told[::2], told[1::2], strict=True))
        fields = {_pairs(row)[b"identifier"]: row for row in info[b"attributes"]}
        missing = [tag for tag in (*TAGS, END) if tag.encode() not in fields]
        if missing or b"prompt_vector" not in fields:
            raise RefusedCommand(f"{index} is not indexed by {', '.join(missing) or 'prompt_vector'}", "index_mismatch")
        return int(_pairs(fields[b"prompt_vector"])[b"dim"])


def _pairs(row: Sequence[Any]) -> dict[Any, Any]:
    """A row of FT.INFO as a mapping; the flags at its end have no value."""
    return dict(zip(row[::2], row[1::2], strict=False))


def _revoked(name: CacheName, query: str, response_sha256: str | None) -> str:
    return revoked_key(name.scope, name.cache, name.fingerprint, query, response_sha256)
