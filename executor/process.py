"""One executor as a process: settings, signals, admin port, exit."""

from __future__ import annotations

import asyncio
import logging
import signal

from connectors.metrics import PrometheusMetrics
from executor.admin import admin
from executor.ports import real_ports
from executor.service import Executor
from executor.settings import ExecutorTree
from schemas import BrokenConfiguration

log = logging.getLogger(__name__)

INTERRUPTED = 130


async def serve(tree: ExecutorTree) -> int:
    """Runs one executor until SIGTERM (exit 0) or Ctrl-C (exit 130); both drain. A second signal ends it at once.

    Raises:
        BrokenConfiguration, StackFault, TransientFault: it could not begin.
    """
    if not tree.pools:
        raise BrokenConfiguration(
            "the executor has no pool: list [[executor.engines]], name a source in executor.discovery, or leave"
            " executor.redis_pools on"
        )
    stop, code = asyncio.Event(), 0

    def end(number: signal.Signals) -> None:
        nonlocal code
        if stop.is_set():
            log.warning("second signal: ending without draining")
            raise SystemExit(INTERRUPTED)
        code = INTERRUPTED if number is signal.SIGINT else 0
        stop.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end, number)
    metrics = PrometheusMetrics()
    settings = tree.executor
    token = None if settings.admin_token is None else settings.admin_token.reveal()
    async with real_ports(tree, metrics) as ports:
        executor = Executor(tree, ports, metrics)
        async with admin(executor, metrics, settings.admin_host, settings.admin_port, token):
            running = asyncio.create_task(executor.run(stop))
            # A signal while it still begins must not wait for a broker that never answers.
            stopping = asyncio.create_task(stop.wait())
            await asyncio.wait({running, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if not executor.ready and not executor.draining:
                running.cancel()
            stopping.cancel()
            try:
                await running
            except asyncio.CancelledError:
                if not stop.is_set():
                    raise
    return code
