"""Values out of a database, through any module that speaks Python's DB-API 2.0 (PEP 249).

The module's calls block. Each load has a thread and a connection of its own: a query that hangs holds up neither the
next one nor the end of the process, and few of them may run at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import re
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from connectors.values.base import Loaded
from connectors.values.settings import SqlLoaderSettings
from connectors.values.texts import sorted_out, stored_form
from schemas.errors import BrokenConfiguration, RefusedCommand, TransientFault

AT_ONCE = 4
_STYLES = {"qmark": "?", "format": "%s", "pyformat": "%s", "numeric": ":{n}"}
_SLOT = re.compile(r"\{(keys|scope)\}")


def filled(query: str, style: str, scope: str, keys: Sequence[str]) -> tuple[str, list[str]]:
    """The query with a placeholder for each key and scope, and the parameters in their order. No value becomes SQL.

    Raises:
        BrokenConfiguration: the driver's placeholders go by name.
    """
    if style not in _STYLES:
        raise BrokenConfiguration(f"executor.sql_loaders: a driver with paramstyle {style!r} cannot be used")
    parameters: list[str] = []

    def slot(match: re.Match[str]) -> str:
        given = keys if match[1] == "keys" else [scope]
        marks = []
        for value in given:
            parameters.append(value)
            marks.append(_STYLES[style].format(n=len(parameters)))
        return ", ".join(marks)

    return _SLOT.sub(slot, query), parameters


class SqlLoader:
    """`Loader` on a database.

    Args:
        environ: replaces the process environment when the password is looked up.

    Raises:
        BrokenConfiguration: there is no such driver, or the password's place is empty.
    """

    def __init__(self, settings: SqlLoaderSettings, environ: Mapping[str, str] | None = None) -> None:
        self._settings = settings
        try:
            self._driver: Any = importlib.import_module(settings.driver)
        except ImportError:
            raise BrokenConfiguration(
                f"executor.sql_loaders: no Python module {settings.driver!r} for {settings.name!r}; install it"
            ) from None
        filled(settings.query, self._driver.paramstyle, "", [""])
        self._options: dict[str, Any] = {}
        if settings.password is not None:
            self._options["password"] = settings.password.reveal(environ)
        if settings.driver == "sqlite3" and settings.dsn.startswith("file:"):
            self._options["uri"] = True
        self._places = asyncio.Semaphore(AT_ONCE)

    async def load(self, scope: str, keys: Sequence[str]) -> Loaded:
        """The values of these keys; see `Loader.load`."""
        try:
            async with asyncio.timeout(self._settings.timeout_ms / 1000):
                await self._places.acquire()
                rows = await self._in_thread(scope, list(keys))
        except TimeoutError:
            raise TransientFault(f"loader {self._settings.name}: no answer in {self._settings.timeout_ms} ms") from None
        return sorted_out({key: stored_form(rows.get(key)) for key in keys})

    def _in_thread(self, scope: str, keys: list[str]) -> asyncio.Future[dict[str, Any]]:
        """The rows, by a thread that gives its place back when its query ends, though nobody waits for it any more."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[dict[str, Any]] = loop.create_future()

        def deliver(rows: dict[str, Any] | None, fault: Exception | None) -> None:
            self._places.release()
            if future.done():
                return
            if fault is not None:
                future.set_exception(fault)
            else:
                future.set_result(rows or {})

        def work() -> None:
            rows, fault = None, None
            try:
                rows = self._rows(scope, keys)
            except Exception as error:
                fault = error
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
                loop.call_soon_threadsafe(deliver, rows, fault)

        threading.Thread(target=work, name=f"loader-{self._settings.name}", daemon=True).start()
        return future

    def _rows(self, scope: str, keys: list[str]) -> dict[str, Any]:
        name, driver = self._settings.name, self._driver
        query, parameters = filled(self._settings.query, driver.paramstyle, scope, keys)
        try:
            with contextlib.closing(driver.connect(self._settings.dsn, **self._options)) as connection:
                cursor = connection.cursor()
                cursor.execute(query, parameters)
                rows = cursor.fetchall()
        except (driver.OperationalError, driver.InterfaceError) as fault:
            raise TransientFault(f"loader {name}: {type(fault).__name__}") from fault
        except driver.Error as fault:
            raise RefusedCommand(f"loader {name}: {type(fault).__name__}", "loader_failed") from fault
        if any(len(row) < 2 for row in rows):
            raise RefusedCommand(f"loader {name}: its query gives no key and value", "loader_failed")
        return {str(row[0]): row[1] for row in rows}

    async def close(self) -> None:
        """Nothing stays open between two loads."""
