"""Equal texts, in memory; `test_find` has them over partitions."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tasks.corpus.dedup.exact import duplicates


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 9)), max_size=12))
def test_of_equal_ids_the_smallest_url_stays(rows):
    ids, urls = [one for one, _ in rows], [f"s:{number}" for _, number in rows]
    found = duplicates(ids, urls)
    lost = {at for at, _ in found}
    assert sorted({ids[at] for at in range(len(ids)) if at not in lost}) == sorted(set(ids))
    assert len(ids) - len(lost) == len(set(ids))
    for at, survivor in found:
        assert ids[at] == ids[survivor]
        assert urls[survivor] == min(url for one, url in zip(ids, urls, strict=True) if one == ids[at])
