"""Structured logs: one JSON object a line on standard error, without prompt text and without secrets."""

from __future__ import annotations

import json
import logging
import sys


class JsonLines(logging.Formatter):
    """Time, level, logger, message, and the `fields` of a record beside them; a field that is None is left out."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        line: dict[str, object] = {
            "at_ms": int(record.created * 1000),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        fields = getattr(record, "fields", None)
        if isinstance(fields, dict):
            line |= {name: value for name, value in fields.items() if value is not None}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def configure(level: str = "INFO") -> None:
    """Sends all logs of this process to standard error as JSON lines; clients' own chatter only as warnings."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for chatty in ("kafka", "httpx", "httpcore", "uvicorn", "asyncio"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
