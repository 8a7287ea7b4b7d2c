"""The reference pages that are written from the code: `python -m stoker.reference` renews docs/configuration.md and
docs/metrics.md, and a test compares them, so that no key and no metric is undocumented.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel

from analytics.knobs import knobs
from analytics.policy import SECTIONS
from connectors.metrics import METRICS
from jobs.metrics import METRICS as JOB_METRICS_BY_NAME
from stoker.config import Settings

DOCS = Path(__file__).parents[1] / "docs"

CONFIGURATION = """# Configuration

Written from the code by `python -m stoker.reference`; do not edit.

One `stoker.toml`, the environment (`STOKER_SECTION__KEY`) and flags, in rising order. An unknown key is an error that
names the nearest known one. Secrets are given by reference (`env:NAME` or `file:PATH`) and never printed. What may
change while jobs run stands under *Policy* and is written by `stoker policy set`.
"""

POLICY = """## Policy

Sections of `warmup.policy`, changed while running: `stoker policy set SECTION key=value [--scope SCOPE]`,
`stoker policy freeze REASON`, `stoker policy thaw`. A scope's own value goes before that of `*`. Durations are event
time at scale 1. Keys that a reader does not know are ignored and counted.
"""

METRICS_PAGE = """# Metrics

Written from the code by `python -m stoker.reference`; do not edit.

## Executor, `/metrics` of its admin port
"""

JOB_METRICS = """
## Jobs, Flink's Prometheus reporter

Each name stands behind `flink_taskmanager_job_task_operator_`, with job, operator and subtask as labels. They count
since the process started; what must be exact is in the insights.
"""


def configuration() -> str:
    """The whole of docs/configuration.md."""
    parts = [CONFIGURATION]
    for name, field in Settings.model_fields.items():
        section = field.annotation
        assert isinstance(section, type)
        if not issubclass(section, BaseModel):
            parts.append(f"## `{name}`\n\n{field.description}\n")
            continue
        parts.append(f"## `[{name}]`\n\n{_first_line(section.__doc__)}\n")
        parts.append(_table(("key", "default", "meaning"), _rows(section)))
    parts.append(POLICY)
    for name, kind in SECTIONS.items():
        rows = [
            (f"`{knob.name}`", f"`{knob.default}`", knob.unit, knob.range, knob.doc) for knob in knobs(kind).values()
        ]
        parts.append(f"### `{name}`\n\n{_first_line(kind.__doc__)}\n")
        parts.append(_table(("key", "default", "unit", "range", "meaning"), rows))
    return "\n".join(parts)


def metrics() -> str:
    """The whole of docs/metrics.md."""
    rows = [
        (f"`{name}`", metric.kind, metric.unit, ", ".join(metric.labels), metric.meaning)
        for name, metric in METRICS.items()
    ]
    executor = _table(("name", "kind", "unit", "labels", "meaning"), rows)
    jobs = _table(("name", "meaning"), [(f"`{name}`", meaning) for name, meaning in JOB_METRICS_BY_NAME.items()])
    return f"{METRICS_PAGE}\n{executor}{JOB_METRICS}\n{jobs}"


def _rows(section: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, ...]]:
    for name, field in section.model_fields.items():
        inner = _model_in(field.annotation)
        default = "required" if field.is_required() else _default(field.get_default(call_default_factory=True))
        yield f"`{prefix}{name}`", default, field.description or _first_line(inner.__doc__ if inner else "")
        if inner is not None and inner.__name__ != "SecretRef":
            many = get_origin(field.annotation) in (tuple, list)
            yield from _rows(inner, f"{prefix}{name}{'[]' if many else ''}.")


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    if get_origin(annotation) in (tuple, list, Union, UnionType):
        return next((found for found in map(_model_in, get_args(annotation)) if found is not None), None)
    return None


def _default(value: Any) -> str:
    if value is None or (isinstance(value, tuple | dict | frozenset) and not value):
        return "none"
    if isinstance(value, BaseModel):
        return "as below"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _table(head: tuple[str, ...], rows: Any) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def _first_line(text: str | None) -> str:
    return (text or "").strip().split("\n\n")[0].replace("\n", " ")


def write() -> None:
    """Renews both pages."""
    (DOCS / "configuration.md").write_text(configuration())
    (DOCS / "metrics.md").write_text(metrics())


if __name__ == "__main__":
    write()
