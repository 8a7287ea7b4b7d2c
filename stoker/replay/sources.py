"""Workloads by name: what `stoker replay --format` and the demo choose from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from schemas import BrokenConfiguration
from stoker.replay.azure import AzureConfig, azure, read_arrivals
from stoker.replay.generated import GeneratedConfig, generated
from stoker.replay.mooncake import TRACE_BLOCK_TOKENS, MooncakeConfig, mooncake, read_trace
from stoker.replay.queries import GENERIC, load_queries
from stoker.replay.turns import Turn, faster, until

Format = Literal["mooncake", "azure", "generated"]


@dataclass(frozen=True)
class Workload:
    """What to play.

    Attributes:
        format: `generated` needs no input.
        input: the trace's file.
        queries: csv of questions; questions of our own where there is none.
        speed: arrivals so many times as dense.
        minutes: stop after so many minutes of playing; None plays to the end.
        block_tokens: tokens of a trace block of Mooncake's.
        seed: of all that is drawn.
    """

    format: Format
    input: Path | None = None
    queries: Path | None = None
    speed: float = 1.0
    minutes: float | None = None
    block_tokens: int = TRACE_BLOCK_TOKENS
    seed: int = 0

    def turns(self) -> Iterator[Turn]:
        """The turns, at the times when they are to be sent.

        Raises:
            BrokenConfiguration: a file is missing or wrong, or a number makes no sense.
        """
        if self.speed <= 0 or (self.minutes is not None and self.minutes <= 0) or self.block_tokens < 1:
            raise BrokenConfiguration("speed and minutes must be positive, block tokens at least 1")
        if self.format == "generated" and self.minutes is None:
            raise BrokenConfiguration("a generated workload has no end: say --minutes")
        asked = load_queries(self.queries) if self.queries is not None else GENERIC
        turns = faster(self._source(asked), self.speed)
        return turns if self.minutes is None else until(turns, self.minutes * 60_000)

    def _source(self, asked: Sequence[str]) -> Iterator[Turn]:
        if self.format == "generated":
            return generated(GeneratedConfig(seed=self.seed), asked)
        if self.input is None:
            raise BrokenConfiguration(f"format {self.format} needs --input FILE")
        if self.format == "mooncake":
            config = MooncakeConfig(block_tokens=self.block_tokens, seed=self.seed)
            return mooncake(read_trace(self.input), config, asked)
        return azure(read_arrivals(self.input), AzureConfig(seed=self.seed), asked)
