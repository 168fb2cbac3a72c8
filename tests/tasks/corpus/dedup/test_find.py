"""The reduce side: what survives is a function of the set of documents, nothing is lost, and earlier corpora win."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tasks.artifact import Step
from tasks.corpus.dedup import candidates, exact, index, partitions, repeats
from tasks.corpus.dedup.config import DedupConfig, NearConfig, PassagesConfig, SubstringConfig
from tasks.corpus.executor import Processes
from tests.tasks.corpus.data import stopped_at

EVERYTHING = DedupConfig(
    near=NearConfig(permutations=64, recall=0.9, threshold=0.6),
    passages=PassagesConfig(
        paragraph_words_min=12, paragraph_boilerplate_min=5, line_words_min=4, line_documents_min=3
    ),
    substring=SubstringConfig(enabled=True, tokens=10, window=5),
)


@pytest.fixture
def small_jobs(monkeypatch):
    """Ranges, runs and buffers of a few entries, as a corpus of terabytes would have of millions."""

    def shrink(entries: int, run: int) -> None:
        monkeypatch.setattr(partitions, "_ENTRIES", entries)
        monkeypatch.setattr(partitions, "_GROUP_BYTES", entries * 100)
        monkeypatch.setattr(index, "RUN_DOCUMENTS", run)
        monkeypatch.setattr(exact, "_HELD", run)
        monkeypatch.setattr(repeats, "_HELD", run)

    return shrink


def documents(write_sentences, make_row, seed: int, count: int) -> list[dict]:
    """Families of near and exact copies that share paragraphs, lines and runs with other families."""
    pick = random.Random(seed)
    shared = [" ".join(write_sentences(1000 + at, 3)) for at in range(3)]
    lines = [write_sentences(2000 + at, 1, 6)[0] for at in range(3)]
    rows = []
    for number in range(count):
        family = pick.randrange(max(count // 2, 1))
        body = write_sentences(family, 8)
        if pick.random() < 0.5:
            body[pick.randrange(8)] = write_sentences(3000 + number, 1)[0]
        paragraphs = [" ".join(body[:4]), " ".join(body[4:])]
        paragraphs += pick.sample(shared, pick.randrange(3)) + pick.sample(lines, pick.randrange(3))
        pick.shuffle(paragraphs)
        rows.append(make_row("\n\n".join(paragraphs), f"s:{number:04}"))
    return rows


@given(
    seed=st.integers(0, 10**6),
    count=st.integers(0, 24),
    parts=st.integers(1, 5),
    entries=st.sampled_from([7, 100, 1 << 20]),
    run=st.sampled_from([1, 3, 1 << 14]),
    data=st.randoms(use_true_random=False),
)
@settings(
    max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
def test_survivors_are_a_function_of_the_set(
    seed, count, parts, entries, run, data, write_sentences, make_row, deduplicated, small_jobs
):
    rows = documents(write_sentences, make_row, seed, count)
    small_jobs(1 << 20, 1 << 14)
    expected = deduplicated([rows], EVERYTHING)
    small_jobs(entries, run)
    data.shuffle(rows)
    borders = sorted(data.randrange(count + 1) for _ in range(parts - 1))
    partitions = [rows[one:other] for one, other in zip([0, *borders], [*borders, count], strict=True)]
    assert deduplicated(partitions, EVERYTHING) == expected


def test_worker_processes_change_nothing(write_sentences, make_row, deduplicated, small_jobs):
    rows = documents(write_sentences, make_row, 7, 40)
    expected = deduplicated([rows], EVERYTHING)
    assert expected[1]
    small_jobs(400, 1 << 14)  # more ranges, that is, more jobs
    assert deduplicated([rows[::2], rows[1::2]], EVERYTHING, Processes(2)) == expected


def test_no_text_stands_twice_even_after_cuts(write_sentences, make_row, deduplicated):
    """Two documents that differ in boilerplate alone are equal once it is gone."""
    shared = ["\n\n".join(f"{line} {word}" for line in write_sentences(5, 6, 5)) for word in ("one", "two")]
    fence = "```\n" + "\n".join(f"call_{number}(value)" for number in range(6)) + "\n```"
    rows = [make_row(f"{text}\n\n{fence}", f"s:{number}") for number, text in enumerate(shared)]
    rows += [make_row("\n\n".join(write_sentences(20 + n, 9)) + "\n\n" + shared[n % 2], f"s:x{n}") for n in range(6)]
    settings = DedupConfig(passages=PassagesConfig(line_documents_min=3, line_words_min=3))
    kept, rejected = deduplicated([rows[:3], rows[3:]], settings)
    assert [row["text"] for row in kept if "call_" in row["text"]] == [fence]
    assert [(row["url"], row["reason"]) for row in rejected] == [("s:1", "exact_duplicate")]
    assert len({row["id"] for row in kept}) == len(kept) == 7


def test_of_equal_texts_the_smallest_url_stays(make_row, deduplicated, write_sentences):
    text = "\n".join(write_sentences(1, 20))
    rows = [make_row(text, url) for url in ("s:c", "s:b", "s:a", "s:d")]
    kept, rejected = deduplicated([rows[:2], rows[2:]], DedupConfig())
    assert [row["url"] for row in kept] == ["s:a"]
    assert {row["reason"] for row in rejected} == {"exact_duplicate"}
    assert {row["value"] for row in rejected} == {f"{kept[0]['id']} 1.0000"}


def test_copies_of_a_near_duplicate_are_told_who_stands_for_them(make_row, deduplicated, write_sentences):
    body = write_sentences(1, 40)
    longer, text = " ".join([*body, "More."]), " ".join(body)
    kept, rejected = deduplicated(
        [[make_row(text, "s:a"), make_row(longer, "s:b"), make_row(text, "s:c")]], DedupConfig()
    )
    assert [row["url"] for row in kept] == ["s:b"]
    assert {row["reason"] for row in rejected} == {"near_duplicate", "exact_duplicate"}
    assert {row["value"].split()[0] for row in rejected} == {kept[0]["id"]}


def test_survivors_are_named_by_the_ids_that_they_are_published_under(make_row, make_corpus, write_sentences):
    """A paragraph is cut out of the document that stands for a near duplicate; its old text is no document."""
    paragraph, body = " ".join(write_sentences(50, 4)), " ".join(write_sentences(1, 40))
    longest = make_row("\n\n".join([*write_sentences(2, 60), paragraph]), "s:longest")
    old = make_corpus(
        [[make_row(body, "s:near")], [make_row(f"{body}\n\n{paragraph}", "s:cut"), longest]], DedupConfig()
    )
    old.find()
    kept, (near,) = old.result()
    ids = {row["url"]: row["id"] for row in kept}
    assert {row["url"]: row["text"] for row in kept}["s:cut"] == body
    assert (near["url"], near["reason"], near["value"].split()[0]) == ("s:near", "near_duplicate", ids["s:cut"])
    # In a later snapshot too, also where the document that it is like was dropped itself.
    likely = f"{body}\n\n{paragraph} More."
    copies = [make_row(body, "s:a"), make_row(f"{body}\n\n{paragraph}", "s:b"), make_row(likely, "s:c")]
    new = make_corpus([copies, [make_row(" ".join(write_sentences(9, 40)), "s:d")]], DedupConfig())
    new.find(earlier=[old.published()])
    kept, rejected = new.result()
    assert [row["url"] for row in kept] == ["s:d"]
    assert [row["url"] for row in rejected] == ["s:a", "s:b", "s:c"]
    assert {row["value"].split()[0] for row in rejected} == {ids["s:cut"]}
    assert all(0.8 <= float(row["value"].split()[1]) <= 1 for row in rejected)


def test_a_page_that_stands_ten_thousand_times_is_cheap(make_row, deduplicated, write_sentences):
    """Copies that differ in a word each: their buckets hold all of them."""
    body = " ".join(write_sentences(1, 6))
    rows = [make_row(f"{body} number{number}", f"s:{number}") for number in range(10_000)]
    kept, rejected = deduplicated([rows], DedupConfig())
    assert len(kept) == 1
    assert len(rejected) == 9_999


def test_earlier_documents_always_win(make_row, make_corpus, write_sentences):
    bodies = [write_sentences(seed, 40) for seed in range(3)]
    paragraph = " ".join(write_sentences(50, 4))
    old = make_corpus(
        [[make_row(" ".join(bodies[0]), "s:z"), make_row(" ".join(bodies[1]), "s:y"), make_row(paragraph, "s:p")]],
        DedupConfig(),
    )
    old.find()
    before = old.result()[0]
    new = make_corpus(
        [
            [make_row(" ".join(bodies[0]), "s:a"), make_row(" ".join([*bodies[1], "Longer."]), "s:b")],
            [make_row(" ".join(bodies[2]) + "\n\n" + paragraph, "s:c")],
        ],
        DedupConfig(),
    )
    new.find(earlier=[old.published()])
    kept, rejected = new.result()
    assert [(row["url"], row["reason"]) for row in rejected] == [("s:a", "exact_duplicate"), ("s:b", "near_duplicate")]
    ids = {row["url"]: row["id"] for row in before}
    assert [row["value"].split()[0] for row in rejected] == [ids["s:z"], ids["s:y"]]
    assert [row["text"] for row in kept] == [" ".join(bodies[2])]


def test_a_paragraph_of_a_dropped_earlier_document_is_not_lost(make_row, make_corpus, write_sentences):
    body, paragraph = write_sentences(1, 60), " ".join(write_sentences(2, 4))
    old = make_corpus(
        [[make_row(" ".join([*body, "End. End."]) + "\n\n" + paragraph[:40], "s:a"), make_row(" ".join(body), "s:b")]],
        DedupConfig(),
    )
    old.find()
    assert len(old.result()[0]) == 1
    new = make_corpus(
        [[make_row(" ".join(body), "s:c"), make_row(paragraph + "\n\nMore of it.", "s:d")]], DedupConfig()
    )
    new.find(earlier=[old.published()])
    assert [row["url"] for row in new.result()[0]] == ["s:d"]
    assert paragraph in new.result()[0][0]["text"]


def test_a_text_that_an_earlier_one_became_is_a_duplicate(make_row, make_corpus, write_sentences):
    """Identity is that of the published text: what the cuts left."""
    shared, own = " ".join(write_sentences(3, 4)), [" ".join(write_sentences(seed, 20)) for seed in (10, 11)]
    old = make_corpus(
        [[make_row(f"{own[0]}\n\n{shared}", "s:a"), make_row(f"{own[1]} {own[1]}\n\n{shared}", "s:b")]], DedupConfig()
    )
    old.find()
    assert own[0] in [row["text"] for row in old.result()[0]]
    only_exact = DedupConfig(near=NearConfig(enabled=False), passages=PassagesConfig(enabled=False))
    new = make_corpus([[make_row(own[0], "s:c")]], only_exact)
    new.find(earlier=[old.published()])
    assert [(row["url"], row["reason"]) for row in new.result()[1]] == [("s:c", "exact_duplicate")]


@pytest.mark.parametrize(
    "group", ["reduce/exact", "reduce/pairs", "reduce/near", "reduce/dropped", "reduce/cuts", "removals"]
)
def test_a_run_stopped_anywhere_continues_to_the_same_removals(
    write_sentences, make_row, make_corpus, deduplicated, monkeypatch, group
):
    rows = documents(write_sentences, make_row, 3, 20)
    expected = deduplicated([rows[:9], rows[9:]], EVERYTHING)
    corpus = make_corpus([rows[:9], rows[9:]], EVERYTHING)
    put = Step.put
    with stopped_at(group):
        corpus.find()
    done = {part.key for part in corpus.step.recorded()}
    again: list[str] = []
    monkeypatch.setattr(Step, "put", lambda self, key, *a, **o: (again.append(key), put(self, key, *a, **o))[1])
    corpus.find()
    assert corpus.result() == expected
    assert not [key for key in again if key in done and not key.startswith("reduce/samples")]


def test_methods_can_be_turned_off(make_row, deduplicated, write_sentences):
    text = " ".join(write_sentences(1, 30))
    rows = [make_row(text, "s:a"), make_row(text, "s:b"), make_row(text + " More.", "s:c")]
    off = DedupConfig(near={"enabled": False}, passages={"enabled": False})
    assert [row["url"] for row in deduplicated([rows], off)[0]] == ["s:a", "s:c"]


def test_equal_texts_are_never_two_documents():
    """The gate refuses two documents with one id: nothing may be asked for that it cannot let through."""
    with pytest.raises(ValueError, match="exact"):
        DedupConfig(exact={"enabled": False}, near={"enabled": False}, passages={"enabled": False})


def test_too_little_memory_is_refused(make_corpus, make_row):
    corpus = make_corpus([[make_row("text of some length", "s:a")]], DedupConfig())
    with pytest.raises(ValueError, match="memory_bytes"):
        corpus.find(memory=1000)


def test_a_partition_without_index_is_named(make_corpus, make_row):
    corpus = make_corpus([[make_row("text of some length", "s:a")]], DedupConfig())
    corpus.keys.append("s/007")
    with pytest.raises(ValueError, match="s/007"):
        corpus.find()


def test_chunks_of_a_component_larger_than_memory(monkeypatch, write_sentences, make_row, deduplicated):
    body = " ".join(write_sentences(1, 30))
    rows = [make_row(f"{body} number{number}", f"s:{number}") for number in range(400)]
    expected = deduplicated([rows], DedupConfig())
    chunks = []
    real = candidates._chunks

    def counted(held, *arguments):
        import dataclasses

        for chunk in real(dataclasses.replace(held, memory_bytes=1 << 17), *arguments):
            chunks.append(chunk)
            yield chunk

    monkeypatch.setattr(candidates, "_chunks", counted)
    assert deduplicated([rows], DedupConfig()) == expected
    assert len(chunks) > 4
