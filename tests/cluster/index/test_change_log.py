"""A log of changes agrees with a list of all changes, wherever it still covers them."""

from hypothesis import given, strategies as st

from neuron_scheduler.cluster.index.change_log import ChangeLog

steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(0, 9)),
        st.tuples(st.just("append"), st.none()),
        st.tuples(st.just("skip"), st.just(0)),
        st.tuples(st.just("drop"), st.integers(0, 40)),
        st.tuples(st.just("fork"), st.just(0)),
    ),
    max_size=40,
)


@given(sequence=steps, most=st.integers(0, 5))
def test_a_covered_position_has_all_changes_since(sequence: list[tuple[str, int | None]], most: int) -> None:
    """Appended, skipped, cut or copied: a position is covered only if every change since is there, in order."""
    log, changes = ChangeLog[int](), list[int]()
    for step, number in sequence:
        if step == "append":
            log.append(len(changes), most=number)
            changes.append(len(changes))
            assert number is None or len(log._changes) <= number
        elif step == "skip":
            log.skip()
            changes.append(-1)
        elif step == "drop":
            log.drop_before(max(log.start, min(log.end, number or 0)))
        else:
            log, before = log.fork(), log
            before.append(-2)
        assert log.end == len(changes)
        assert len(log._changes) == log.end - log.start
        for position in range(log.end + 1):
            if log.covers(position):
                assert log.changes_since(position) == changes[position:]
                assert log.changes_since(position, most) == changes[position : position + most]
        assert log.covers(log.end)
