"""What an announced change ends of what was rendered or answered before it took effect (DESIGN §3.4).

A change that gives something another name ends the old one for good. One under the same name - new weights, another
tokenizer - ends only what was asked for before: what is asked for afterwards is of the new one.
"""

from __future__ import annotations

from collections.abc import Iterable

from analytics.commands import NEVER_MS
from schemas import Announcement


def ended_before(changes: Iterable[Announcement], model: str, template: str) -> int:
    """What was asked for before which event time is over, of a model and a template; 0 where nothing is.

    Args:
        changes: of models, tokenizers and templates, in effect, of the scope that asked.
    """
    return max((_ended_before(change, model, template) for change in changes), default=0)


def _ended_before(change: Announcement, model: str, template: str) -> int:
    if change.kind == "template":
        if change.replaces != template or change.model not in (None, model):
            return 0
        return change.at_ms if change.name == template else NEVER_MS
    if change.kind == "tokenizer" and change.model == model:
        # Requests name the model and not its tokenizer: it goes on under the same name.
        return change.at_ms
    if change.replaces != model:
        return 0
    return change.at_ms if change.model == model else NEVER_MS
