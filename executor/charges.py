"""What works cost their scope: taken from its quota when they are admitted, given back as far as it was not spent."""

from __future__ import annotations

from executor.orders import Work
from executor.outcomes import Ending
from executor.quota import Quota
from schemas import OutcomeReason, Prefix, Response, WarmupCommand


class Charges:
    """What the works of one pool were charged.

    Args:
        answer_tokens: the most that an answer to be generated may have beside its prompt.
    """

    def __init__(self, quota: Quota, answer_tokens: int) -> None:
        self._quota = quota
        self._answer_tokens = answer_tokens

    def take(self, work: Work, now_ms: int) -> bool:
        """Charges a work, if its scope can pay for it."""
        command = work.command
        if command.action == "invalidate":
            return True  # taking a bad answer out costs nothing and must not wait for a budget
        computed = _computed(command)
        units = 1 if computed is None else max(computed.tokens, command.cost.tokens)
        if computed is not None and isinstance(command.target, Response):
            units += self._answer_tokens
        if not self._quota.take(command.scope, units, now_ms):
            return False
        work.charged_tokens = units
        return True

    def give_back(self, work: Work, ending: Ending) -> None:
        """Gives back to the scope what a work was charged and did not spend."""
        spent = int(ending.status == "applied") if _computed(work.command) is None else ending.tokens_warmed
        if ending.reason is OutcomeReason.UNVERIFIED or ending.status == "failed":
            spent = work.charged_tokens
        self._quota.give_back(work.command.scope, work.charged_tokens - spent)
        work.charged_tokens = 0

    def give_all_back(self, work: Work) -> None:
        """Gives back what a work was charged that this executor did not send: it is dropped, or somebody else's."""
        self._quota.give_back(work.command.scope, work.charged_tokens)
        work.charged_tokens = 0


def _computed(command: WarmupCommand) -> Prefix | None:
    """The prompt that an engine computes for a command; None where none has a length that quota counts."""
    target = command.target
    if isinstance(target, Response):
        return target.prompt if target.response_ref is None else None
    return target if isinstance(target, Prefix) else None
