"""The table of rules, and how one is run on JSON."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, get_type_hints

import msgspec
from msgspec import Struct

from schemas import BrokenConfiguration

Variant = Literal["spec", "tuned"]
Decision = Callable[[Any], object]
D = TypeVar("D", bound=Decision)


class Input(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a rule reads; a field that it does not know is a mistake."""


@dataclass(frozen=True)
class Rule:
    """One decision.

    Attributes:
        name: as in the brackets of DECISIONS.md.
        decision: the D number.
        summary: one sentence.
        input: what it reads.
        example: an input that shows it.
        variants: the reference rule, and ours where there is one.
    """

    name: str
    decision: str
    summary: str
    input: type[Struct]
    example: Mapping[str, Any]
    variants: Mapping[Variant, Decision]


RULES: dict[str, Rule] = {}
"""All rules by name, in the order of their decisions."""


def rule(name: str, decision: str, example: Mapping[str, Any], tuned: Decision | None = None) -> Callable[[D], D]:
    """Registers a function of one `Input` as a rule; the first line of its docstring is what people read."""

    def register(spec: D) -> D:
        hints = get_type_hints(spec)
        [kind] = [hint for parameter, hint in hints.items() if parameter != "return"]
        variants: dict[Variant, Decision] = {"spec": spec}
        if tuned is not None:
            variants["tuned"] = tuned
        summary = (spec.__doc__ or "").strip().splitlines()[0]
        RULES[name] = Rule(name, decision, summary, kind, example, variants)
        return spec

    return register


def find(name: str) -> Rule:
    """The rule of a name.

    Raises:
        BrokenConfiguration: there is none; the nearest one is named.
    """
    found = RULES.get(name)
    if found is None:
        near = difflib.get_close_matches(name, RULES, 1)
        raise BrokenConfiguration(
            f"no rule {name!r}" + (f": did you mean {near[0]}?" if near else "") + " `stoker rule` lists all"
        )
    return found


def decide(name: str, text: bytes, variant: Variant = "spec") -> object:
    """Runs a rule on a JSON input; the result is made of JSON's types.

    Raises:
        BrokenConfiguration: no such rule or variant, or the input is wrong; the message names its field.
    """
    found = find(name)
    decision = found.variants.get(variant)
    if decision is None:
        raise BrokenConfiguration(f"{name} has no {variant} rule; there is: {', '.join(found.variants)}")
    try:
        asked = msgspec.json.decode(text, type=found.input)
    except msgspec.ValidationError as fault:
        raise BrokenConfiguration(f"input of {name}: {fault}; its fields: {_fields(found)}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as fault:
        raise BrokenConfiguration(f"input of {name} is no JSON ({fault})") from None
    try:
        return plain(decision(asked))
    except ValueError as fault:
        raise BrokenConfiguration(f"input of {name}: {fault}") from None


def plain(value: object) -> object:
    """A result in JSON's types; named tuples are objects."""
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {name: plain(each) for name, each in value._asdict().items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    simple = msgspec.to_builtins(value)
    return plain(simple) if isinstance(simple, dict) else simple


def _fields(rule: Rule) -> str:
    return ", ".join(
        field.encode_name + ("" if field.required else "?") for field in msgspec.structs.fields(rule.input)
    )


for _module in (
    "demand",
    "queries",
    "prompts",
    "patterns",
    "prefixes",
    "adapters",
    "load",
    "plans",
    "memory",
    "breaker",
):
    importlib.import_module(f"stoker.rules.{_module}")
