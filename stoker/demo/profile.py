"""What a demo plays on what: workload, pools and model speed that belong together.

The numbers are chosen so that the question is worth asking, not so that the answer is yes: plain LRU loses prefixes
that come back, replicas are idle most of the time (so there is room to warm), and a lost prefix costs about a tenth of
a second. Capacity, load, and what plain LRU alone would have hit are printed with the result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from analytics.scopes import ScopeMap
from schemas import BrokenConfiguration
from stoker.replay.generated import GeneratedConfig, TenantPlan, generated
from stoker.replay.mooncake import MooncakeConfig, mooncake, read_trace
from stoker.replay.queries import GENERIC, load_queries
from stoker.replay.turns import Turn, faster, until

BLOCK_TOKENS = 16
TRACE = Path("traces/mooncake_conversation_trace.jsonl.gz")
QUERIES = Path("text/banking77_train.csv")

TENANTS = (
    TenantPlan("shop", share=0.30, system_words=120, families=24, document_words=400, exponent=0.3, drift_ms=20_000),
    TenantPlan(
        "docs",
        share=0.58,
        system_words=120,
        families=10,
        document_words=400,
        exponent=0.3,
        drift_ms=20_000,
        one_off_share=0.8,
    ),
    TenantPlan(
        "clinic",
        share=0.12,
        system_words=120,
        families=6,
        document_words=320,
        exponent=0.3,
        drift_ms=20_000,
        withheld=True,
    ),
)
"""A shop with product sheets, a document service with many one-off uploads, a clinic that withholds its texts.

As in Mooncake's trace, where three of four blocks are never asked for again, it is one-off material that pushes the
rest out. All documents that come back would fill about half of a pool. When the pool is smaller than they are, warming
one only displaces another and everybody waits longer: tried, and worse than plain LRU.
"""


@dataclass(frozen=True)
class Profile:
    """A workload and the replicas that it meets.

    Attributes:
        title: for people.
        turns: makes the turns of so many minutes.
        scopes: tenants and their scopes.
        withheld: scopes whose texts nobody keeps, so that nothing can be warmed for them.
        replicas: how many.
        num_blocks: of each pool, one of which holds nothing.
        prefill_ms_per_token: as it passes on the clock.
    """

    title: str
    turns: Callable[[float], Iterator[Turn]]
    scopes: ScopeMap
    withheld: frozenset[str]
    replicas: int = 2
    num_blocks: int = 2_000
    prefill_ms_per_token: float = 0.2
    decode_ms_per_token: float = 1.0

    @property
    def capacity_tokens(self) -> int:
        """What one replica's pool holds."""
        return (self.num_blocks - 1) * BLOCK_TOKENS

    @property
    def prefill_tokens_per_s(self) -> float:
        """What one replica computes when it does nothing else."""
        return 1000 / self.prefill_ms_per_token


def generated_profile(seed: int) -> Profile:
    """Three generated tenants, 20 requests a second."""
    config = GeneratedConfig(tenants=TENANTS, requests_per_s=20.0, seed=seed)
    return Profile(
        title=f"generated: 20 requests/s of {', '.join(plan.name for plan in TENANTS)}; seed {seed}",
        turns=lambda minutes: until(generated(config), minutes * 60_000),
        scopes=ScopeMap(tenants={plan.name: plan.name for plan in TENANTS}),
        withheld=frozenset(plan.name for plan in TENANTS if plan.withheld),
    )


def mooncake_profile(folder: Path, seed: int, speed: float = 5.0) -> Profile:
    """The Mooncake conversation trace with a block of 16 tokens for its 512, and Banking77's questions.

    Raises:
        BrokenConfiguration: the folder does not hold the trace.
    """
    path = folder / TRACE
    if not path.is_file():
        raise BrokenConfiguration(f"--input {folder}: there is no {TRACE} in it")
    lines = read_trace(path)
    queries = load_queries(folder / QUERIES) if (folder / QUERIES).is_file() else GENERIC
    config = MooncakeConfig(block_tokens=BLOCK_TOKENS, answer_share=1 / 32, tenants=2, seed=seed)
    return Profile(
        title=f"Mooncake conversation trace, {speed:g} times as fast, blocks of {BLOCK_TOKENS} tokens; seed {seed}",
        turns=lambda minutes: until(faster(mooncake(lines, config, queries), speed), minutes * 60_000),
        scopes=ScopeMap(tenants={f"tenant-{number}": f"tenant-{number}" for number in range(config.tenants)}),
        withheld=frozenset(),
        num_blocks=4_000,
        prefill_ms_per_token=0.1,
    )


def profile_of(folder: Path | None, seed: int) -> Profile:
    """The profile that a demo's `--input` and seed mean."""
    return generated_profile(seed) if folder is None else mooncake_profile(folder, seed)
