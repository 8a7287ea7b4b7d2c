import ast
import itertools
from pathlib import Path

import pytest

from analytics.knobs import knobs
from analytics.plan_config import PlanConfig
from analytics.policy import SECTIONS, PlanPolicy, PolicyBook, PolicyDefaults
from analytics.prefixes import PrefixConfig
from schemas import EVERY_SCOPE, Policy, decode, encode


def policy(section="plan", scope="a", writer="cli", version=1, at_ms=1, deleted=False, **body):
    return Policy(scope=scope, section=section, writer=writer, version=version, at_ms=at_ms, body=body, deleted=deleted)


def test_only_a_greater_version_is_applied():
    book = PolicyBook()
    assert book.apply(policy(version=2, copies=3))
    assert not book.apply(policy(version=2, copies=4))
    assert not book.apply(policy(version=1, copies=5))
    assert book.plan("a").copies == 3
    assert book.version("a") == 2


def test_a_scope_of_its_own_wins_over_every_scope_and_others_keep_the_defaults():
    book = PolicyBook(PolicyDefaults(plan=PlanPolicy(copies=7)))
    book.apply(policy(scope=EVERY_SCOPE, at_ms=9, shadow=True, lead_ms=1))
    book.apply(policy(scope="a", at_ms=1, lead_ms=2))
    assert (book.plan("a").shadow, book.plan("a").lead_ms, book.plan("a").copies) == (True, 2, 7)
    assert (book.plan("b").shadow, book.plan("b").lead_ms) == (True, 1)


def test_views_do_not_depend_on_the_order_of_arrival():
    parts = [
        policy(writer="x", at_ms=5, copies=1),
        policy(writer="y", at_ms=5, copies=2),
        policy(writer="z", at_ms=4, copies=3, version=8),
        policy(scope=EVERY_SCOPE, at_ms=99, copies=4),
    ]
    seen = set()
    for order in itertools.permutations(parts):
        book = PolicyBook()
        for part in order:
            book.apply(part)
        seen.add(book.plan("a"))
    assert [view.copies for view in seen] == [2]


def test_frozen_is_the_or_of_all_writers():
    book = PolicyBook()
    book.apply(policy("freeze", writer="attribution", reason="harm"))
    book.apply(policy("freeze", scope=EVERY_SCOPE, writer="operator"))
    assert book.frozen("a") == ("harm", "operator")
    assert book.frozen("b") == ("operator",)
    book.apply(policy("freeze", scope=EVERY_SCOPE, writer="operator", version=2, frozen=False))
    assert book.frozen("b") == ()
    book.apply(policy("freeze", writer="attribution", version=3, deleted=True))
    assert book.frozen("a") == ()
    assert not book.apply(policy("freeze", writer="attribution", version=2, reason="late copy"))


def test_unknown_wrong_and_impossible_values_are_ignored_and_named():
    book = PolicyBook()
    book.apply(policy(copies=0, shadow="yes", lead_ms=1.5, colour="red", qos="gold", min_saved_ms=float("nan")))
    book.apply(policy("breaker", trip=0.5))
    assert book.plan("a") == PlanPolicy()
    assert book.ignored == (
        "a/breaker/cli/trip",
        "a/plan/cli/colour",
        "a/plan/cli/copies",
        "a/plan/cli/lead_ms",
        "a/plan/cli/min_saved_ms",
        "a/plan/cli/qos",
        "a/plan/cli/shadow",
    )


def test_integers_become_floats_where_floats_are_meant():
    book = PolicyBook()
    book.apply(policy("experiment", hold_share=1))
    assert isinstance(book.experiment("a").hold_share, float)


def test_a_book_comes_back_from_its_entries():
    book = PolicyBook()
    for part in (policy(copies=3), policy("freeze", reason="r"), policy("budget", deleted=True, version=4)):
        book.apply(part)
    again = PolicyBook.of(book.entries())
    assert again.entries() == book.entries()
    assert (again.plan("a"), again.frozen("a")) == (book.plan("a"), book.frozen("a"))
    assert not again.apply(policy("budget", version=3))


@pytest.mark.parametrize("section", SECTIONS)
def test_every_section_may_be_told_over_its_topic(section):
    told = policy(section)
    assert decode(encode(told), Policy) == told


def test_every_key_is_read_by_something():
    """A key that nobody reads would be set without effect. `freeze` is read by the book itself."""
    root = Path(__file__).parents[2]
    read = {
        node.attr
        for package in ("analytics", "jobs", "executor", "stoker")
        for file in (root / package).rglob("*.py")
        if file.name not in ("policy.py", "plan_config.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)
    }
    kinds = [kind for section, kind in SECTIONS.items() if section != "freeze"]
    assert [f"{kind.__name__}.{key}" for kind in kinds for key in knobs(kind) if key not in read] == []


@pytest.mark.parametrize("kind", [*SECTIONS.values(), PlanConfig, PrefixConfig], ids=lambda kind: kind.__name__)
def test_every_key_explains_itself_and_accepts_its_default(kind):
    found = knobs(kind)
    no_value = {"own"}  # an object, which the job loads by the key `warmup.own_policy`
    assert set(found) == set(kind.__dataclass_fields__) - no_value
    for entry in found.values():
        assert entry.doc.endswith(".")
        assert entry.accepts(entry.default)
        assert entry.range
