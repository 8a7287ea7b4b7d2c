"""Bench `simulator`: prompt tokens a second that one simulated replica accounts for at zero model time.

32 clients send prompts of 4,096 token ids, half of each shared with the others, to a replica with blocks of 16 and to
one with blocks of 512 tokens. The pool is a little smaller than the distinct prompts, so that blocks are looked up,
stored and evicted all the time. Rounds of both sizes alternate; each figure is the median of its rounds. The rate "a
core" divides by the processor time of the replica, because the clients run on the same machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

import msgspec

from stoker.bench.figures import Figure, Report, at_least
from stoker.simulator.process import RunningSimulator, simulator

CLIENTS = 32
PROMPT_TOKENS = 4096
DISTINCT_PROMPTS = 128
BLOCK_SIZES = (16, 512)
ROUNDS = 5
REQUESTS_A_ROUND = 256
GOAL_TOKENS_PER_S = 1_000_000
_SEED = 11
_HEAD = "POST /v1/completions HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\n"


@dataclass(frozen=True)
class Round:
    """One round's rates, prompt tokens a second."""

    a_core: float
    wall: float


def run(events: int = REQUESTS_A_ROUND, rounds: int = ROUNDS) -> Report:
    """Figures tokens_per_s (of a core of the replica) and wall_tokens_per_s, by block size.

    Args:
        events: requests of each round.
        rounds: counted rounds of each block size, interleaved.

    Raises:
        StackFault: a simulator did not start.
    """
    report = Report("simulator")
    prompts = _requests()
    measured: dict[int, list[Round]] = {size: [] for size in BLOCK_SIZES}
    with contextlib.ExitStack() as stack:
        replicas = {size: stack.enter_context(simulator(*_flags(size))) for size in BLOCK_SIZES}
        for replica in replicas.values():
            asyncio.run(_round(replica, prompts, events))  # fills caches; not measured
        for _ in range(rounds):
            for size, replica in replicas.items():
                measured[size].append(asyncio.run(_round(replica, prompts, events)))
    a_core = {size: statistics.median(one.a_core for one in rounds) for size, rounds in measured.items()}
    report.add(Figure("tokens_per_s", min(a_core.values()), "tokens/s", goal=at_least(GOAL_TOKENS_PER_S)))
    for size in BLOCK_SIZES:
        report.add(Figure(f"tokens_per_s.{size}", a_core[size], "tokens/s", goal=at_least(GOAL_TOKENS_PER_S)))
        wall = statistics.median(one.wall for one in measured[size])
        report.add(Figure(f"wall_tokens_per_s.{size}", wall, "tokens/s"))
    return report


def _flags(block_tokens: int) -> tuple[str, ...]:
    blocks = DISTINCT_PROMPTS * PROMPT_TOKENS // 2 // block_tokens
    return ("--block-tokens", str(block_tokens), "--num-blocks", str(blocks), "--max-num-seqs", str(CLIENTS))


def _requests() -> list[bytes]:
    """Whole HTTP requests, so that the clients cost little."""
    source = random.Random(_SEED)
    shared = [source.randrange(300, 100_000) for _ in range(PROMPT_TOKENS // 2)]
    requests = []
    for _ in range(DISTINCT_PROMPTS):
        own = [source.randrange(300, 100_000) for _ in range(PROMPT_TOKENS - len(shared))]
        body = msgspec.json.encode({"model": "tiny", "prompt": shared + own, "max_tokens": 1})
        head = f"{_HEAD}content-length: {len(body)}\r\n\r\n"
        requests.append(head.encode() + body)
    return requests


async def _round(replica: RunningSimulator, prompts: list[bytes], requests: int) -> Round:
    address = urlsplit(replica.url)
    pending = iter(prompts[number % len(prompts)] for number in range(requests))
    cpu_s, started_s = replica.cpu_s, time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(CLIENTS):
            group.create_task(_client(address.hostname or "", address.port or 0, pending))
    wall_s = time.perf_counter() - started_s
    tokens = requests * PROMPT_TOKENS
    return Round(tokens / (replica.cpu_s - cpu_s), tokens / wall_s)


async def _client(host: str, port: int, pending: Iterator[bytes]) -> None:
    """One keep-alive connection that sends what is left until nothing is."""
    reader, writer = await asyncio.open_connection(host, port)
    for request in pending:
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(f"the simulator answered {head.splitlines()[0]!r}")
        length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        await reader.readexactly(length)
    writer.close()
    await writer.wait_closed()
