"""`stoker rule`: every decision that is a function, by its name in DECISIONS.md, on JSON (DESIGN §8).

A rule reads a typed input and calls the very function that the jobs call; `registry` finds it and says what is wrong
with an input.
"""

from stoker.rules.registry import RULES, Rule, decide, find

__all__ = ["RULES", "Rule", "decide", "find"]
