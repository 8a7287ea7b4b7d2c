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
from stoker.replay.generated import GeneratedConfig, Promotion, TenantPlan, generated
from stoker.replay.mooncake import MooncakeConfig, mooncake, read_trace
from stoker.replay.queries import GENERIC, load_queries
from stoker.replay.turns import Turn, faster, until

BLOCK_TOKENS = 16
TRACE = Path("traces/mooncake_conversation_trace.jsonl.gz")
QUERIES = Path("text/banking77_train.csv")

ADAPTERS = ("shop@1", "shop@2")
"""The shop's adapter, and the version that replaces it in the middle of a run."""
REQUESTS_PER_S = 20.0
ANSWER_TOKENS = 12
"""Length of every answer; the model ends by itself, so that an answer is whole and may be served again."""


def tenants(minutes: float) -> tuple[TenantPlan, ...]:
    """A shop with product sheets, a document service with many one-off uploads, a clinic that withholds its texts.

    As in Mooncake's trace, where three of four blocks are never asked for again, it is one-off material that pushes the
    rest out. All documents that come back would fill about half of a pool. When the pool is smaller than they are,
    warming one only displaces another and everybody waits longer: tried, and worse than plain LRU.

    After a third of the run the shop has a promotion, in its middle a new version of its adapter; a robot crawls the
    document service all the time.
    """
    whole_ms = minutes * 60_000
    shared = {"system_words": 120, "document_words": 400, "exponent": 0.3, "drift_ms": 20_000.0}
    promotion = Promotion(at_ms=0.35 * whole_ms, for_ms=0.25 * whole_ms, share=0.35)
    return (
        TenantPlan(
            "shop",
            share=0.30,
            families=24,
            domain="e-commerce",
            adapters=ADAPTERS,
            rotation_ms=whole_ms / 2,
            promotion=promotion,
            **shared,  # type: ignore[arg-type]
        ),
        TenantPlan("docs", share=0.58, families=10, one_off_share=0.78, crawl_ms=2_000.0, **shared),  # type: ignore[arg-type]
        TenantPlan("clinic", share=0.12, families=6, withheld=True, **shared),  # type: ignore[arg-type]
    )


@dataclass(frozen=True)
class Profile:
    """A workload and the replicas that it meets.

    Attributes:
        title: for people.
        turns: makes the turns of so many minutes.
        scopes: tenants and their scopes.
        withheld: scopes whose texts nobody keeps, so that nothing can be warmed for them.
        adapters: that its requests ask for, in their order; each of the tenant before its version.
        replicas: how many.
        num_blocks: of each pool, one of which holds nothing.
        prefill_ms_per_token: as it passes on the clock.
    """

    title: str
    turns: Callable[[float], Iterator[Turn]]
    scopes: ScopeMap
    withheld: frozenset[str]
    adapters: tuple[str, ...] = ()
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
    plans = tenants(1.0)

    def turns(minutes: float) -> Iterator[Turn]:
        config = GeneratedConfig(
            tenants(minutes), REQUESTS_PER_S, answer_tokens=ANSWER_TOKENS, limited=False, seed=seed
        )
        return until(generated(config), minutes * 60_000)

    return Profile(
        title=f"generated: {REQUESTS_PER_S:.0f} requests/s of {', '.join(plan.name for plan in plans)}, with a "
        f"promotion, a crawler, a new adapter and a rolling restart; seed {seed}",
        turns=turns,
        scopes=ScopeMap(tenants={plan.name: plan.name for plan in plans}),
        withheld=frozenset(plan.name for plan in plans if plan.withheld),
        adapters=ADAPTERS,
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
