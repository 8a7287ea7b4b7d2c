"""Settings that explain themselves: dataclass fields with unit, range and meaning, from which docs and checks are made.

A *knob* is a field of a frozen dataclass. Its metadata says what a person must know to turn it, so that
`docs/configuration.md`, `stoker policy set` and the reading of a Policy's body all use the same sentence and range.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Any, TypeVar

T = TypeVar("T")

Value = str | int | float | bool | None


def knob(
    default: T,
    doc: str,
    *,
    unit: str = "",
    low: float | None = None,
    high: float | None = None,
    choices: tuple[str, ...] | None = None,
) -> T:
    """A field with a default and everything that a person must know about it.

    Args:
        default: a value that works.
        doc: one sentence, what turning it does.
        unit: of a number, e.g. `ms`, `tokens/s`, `bits`; empty for a switch or a word.
        low, high: inclusive range of a number.
        choices: of a word.
    """
    return field(default=default, metadata={"knob": Knob("", default, doc, unit, low, high, choices)})


@dataclass(frozen=True)
class Knob:
    """What is known about one setting; see `knob`."""

    name: str
    default: Any
    doc: str
    unit: str = ""
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] | None = None

    @property
    def range(self) -> str:
        """The range in words, for the documentation."""
        if self.choices is not None:
            return " | ".join(self.choices)
        if isinstance(self.default, bool):
            return "true | false"
        if self.low is None and self.high is None:
            return "text" if isinstance(self.default, str) else "any"
        low = "-∞" if self.low is None else f"{self.low:g}"
        high = "∞" if self.high is None else f"{self.high:g}"
        return f"{low} to {high}"

    def accepts(self, value: Value) -> bool:
        """Whether a value has this setting's type and lies in its range. Integers are fine where a float is meant."""
        if isinstance(self.default, bool):
            return isinstance(value, bool)
        if isinstance(self.default, str):
            return isinstance(value, str) and (self.choices is None or value in self.choices)
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            return False
        if isinstance(self.default, int) and not float(value).is_integer():
            return False
        return (self.low is None or value >= self.low) and (self.high is None or value <= self.high)

    def coerced(self, value: Value) -> Value:
        """An accepted value in the type of the default: 1 becomes 1.0 where a float is meant."""
        if isinstance(self.default, bool | str) or value is None:
            return value
        return int(value) if isinstance(self.default, int) else float(value)


def knobs(kind: Any) -> dict[str, Knob]:
    """The knobs of a dataclass (or an instance of one), by name and in the order of their definition."""
    found = {}
    for entry in dataclasses.fields(kind):
        knob_of_field = entry.metadata.get("knob")
        if knob_of_field is not None:
            found[entry.name] = dataclasses.replace(knob_of_field, name=entry.name)
    return found
