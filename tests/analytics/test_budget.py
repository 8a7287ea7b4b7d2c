import pytest
from hypothesis import given
from hypothesis import strategies as st

from analytics.budget import Budget
from analytics.commands import Allowance
from analytics.records import Section
from analytics.stores import MemoryMapStore
from analytics.worth import Worth, p_absent, p_absent_prior


@given(st.lists(st.tuples(st.integers(0, 3_000), st.floats(0.1, 60)), max_size=60))
def test_no_order_of_payments_spends_more_than_rate_and_one_bucket_and_one_debt(payments):
    budget = Budget(Section(MemoryMapStore(), "y"))
    now, spent, largest = 0, 0.0, 0.0
    for wait, cost in payments:
        now += wait
        if budget.pay("s", cost, 10.0, 20.0, now):
            spent += cost
            largest = max(largest, cost)
        assert spent <= 20 + 10 * now / 1000 + max(0.0, largest - 20) + 1e-6


def test_a_bucket_survives_in_its_store():
    store = MemoryMapStore()
    budget = Budget(Section(store, "y"))
    assert budget.pay("s", 15, 10, 20, 1000)
    budget.refund("s", 2)
    again = Budget(Section(store.copy(), "y"))
    for _, blob in store.items():
        again.restore(blob)
    assert again.held("s", 10, 20, 1500) == budget.held("s", 10, 20, 1500) == 12
    assert not again.pay("s", 13, 10, 20, 1500)
    assert not budget.pay("t", 1, 0, 0, 1500)


def test_a_bucket_is_forgotten_when_it_is_full_at_the_rate_of_now():
    store = MemoryMapStore()
    budget = Budget(Section(store, "y"))
    assert budget.pay("s", 20, 10, 20, 0)

    def slower(_: str) -> Allowance:
        return Allowance(5, 20)

    budget.forget(2_000, slower)
    assert budget.held("s", 5, 20, 2_000) == 10
    again = Budget(Section(store.copy(), "y"))
    for _, blob in store.items():
        again.restore(blob)
    for each in (budget, again):
        each.forget(3_999, slower)
        assert each
        each.forget(4_000, slower)
        assert not each
    assert not list(store.items())


def test_a_bucket_without_income_is_forgotten_in_the_end():
    budget = Budget(Section(MemoryMapStore(), "y"))
    assert budget.pay("s", 20, 10, 20, 0)
    budget.forget(2_000, lambda _: Allowance(0, 0))
    assert not budget


def test_worth_and_absence():
    worth = Worth(p_asked=0.5, p_absent=0.5, saved_ms=100, cost=50)
    assert (worth.expected_ms, worth.density) == (25, 0.5)
    assert p_absent_prior(0.0, 4, 1e9) == 1
    assert p_absent_prior(0.1, 2, 20_000) == pytest.approx(2.718281828**-1)
    assert p_absent(1, 3, 0.5) == 0.375
    assert p_absent(0, 0, 0.5) == 0
