"""The simulator's own routes, the same in every dialect: /sim/ledger and /sim/totals."""

from __future__ import annotations

from dataclasses import asdict

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from stoker.simulator.engine import SimulatedEngine
from stoker.simulator.replies import json_reply


class Books:
    """What one replica did."""

    def __init__(self, engine: SimulatedEngine) -> None:
        self.engine = engine

    @property
    def routes(self) -> list[Route]:
        """Both."""
        return [Route("/sim/ledger", self.ledger), Route("/sim/totals", self.totals)]

    async def ledger(self, request: Request) -> Response:
        """GET /sim/ledger?request_id=: finished requests, oldest first, as far as they are remembered."""
        wanted = request.query_params.get("request_id")
        ledger = self.engine.ledger
        return json_reply([asdict(entry) for entry in (ledger.of(wanted) if wanted else ledger.entries)])

    async def totals(self, _request: Request) -> Response:
        """GET /sim/totals: sums since this incarnation started, and what lies where."""
        engine = self.engine
        return json_reply(
            {
                "name": engine.config.name,
                "incarnation": engine.incarnation,
                "started_at_ms": int(engine.started_s * 1000),
                "requests": engine.ledger.requests,
                "prompt_tokens": engine.ledger.prompt_tokens,
                "cached_tokens": engine.ledger.cached_tokens,
                "created_tokens": engine.ledger.created_tokens,
                "answer_tokens": engine.ledger.answer_tokens,
                "outcomes": dict(engine.ledger.outcomes),
                "rejections": engine.rejections,
                "running": len(engine.running),
                "waiting": len(engine.waiting),
                "blocks": {
                    "tokens": engine.config.block_tokens,
                    "usable": engine.pool.usable,
                    "held": engine.pool.held,
                    "idle": engine.pool.idle,
                    "blank": engine.pool.blank,
                    "evicted": engine.pool.evicted_total,
                },
                "adapters": {"gpu": engine.adapters.on_gpu, "cpu": engine.adapters.on_cpu},
                "memory": {
                    "total_bytes": engine.memory.total_bytes,
                    "free_bytes": engine.memory.free_bytes,
                    "largest_free_bytes": engine.memory.largest_free_bytes,
                },
            }
        )
