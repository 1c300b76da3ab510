"""The bounded tables."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from langgraph_roundcompact._memo import BoundedTable


def test_the_first_known_key_answers() -> None:
    table = BoundedTable(10)
    table.put("b", 2)
    table.put("c", 3)
    assert (table.get("a", "c", "b"), table.get("a"), table.get()) == (3, None, None)


def test_what_was_not_used_for_the_longest_time_is_forgotten() -> None:
    table = BoundedTable(2)
    table.put("a", 1)
    table.put("b", 2)
    table.get("a")
    table.put("c", 3)
    assert (table.get("a"), table.get("b"), table.get("c"), len(table)) == (1, None, 3, 2)


def test_a_value_is_replaced_in_place() -> None:
    table = BoundedTable(2)
    table.put("a", 1)
    table.put("a", 2)
    assert (table.get("a"), len(table)) == (2, 1)


def test_many_threads_may_use_it_at_once() -> None:
    table = BoundedTable(50)

    def work(number: int) -> bool:
        for i in range(200):
            table.put(f"{number}-{i}", i)
            table.get(f"{number}-{i}", f"{number}-{i - 1}")
        return len(table) <= 50

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(8)))
