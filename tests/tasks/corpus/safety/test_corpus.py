"""Safety through the corpus stage as a whole: what is kept out, masked, counted and explained."""

from __future__ import annotations

import json

import pytest

from tasks.artifact import Artifact, Step
from tasks.corpus.acquire import acquire
from tasks.corpus.config import CorpusConfig, SourcesConfig
from tasks.corpus.curation import curate
from tests.tasks.corpus.data import WORDS, rows, sentences

QUESTION = (
    "A farmer has seventeen sheep and sells all but nine of them at the market before noon. How many sheep does the "
    "farmer still have when the market closes, and how many would remain if five more were bought?"
)
GPL = "# This program is free software under the terms of the GNU General Public License version 2\n"


def program(seed: int) -> str:
    return "\n".join(
        f"def {name}_{seed}(value):\n    '''The {name} of a value.'''\n    return value * {seed} + {number}\n"
        for number, name in enumerate(WORDS)
    )


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Artifact:
    root = tmp_path_factory.mktemp("safety")
    web, code = root / "web", root / "code"
    (web / "mirror" / "www.bad.test").mkdir(parents=True)
    code.mkdir()
    for seed in range(4):
        (web / f"clean{seed}.txt").write_text(sentences(seed))
    (web / "mirror" / "www.bad.test" / "page.txt").write_text(sentences(10))
    (web / "dirty.txt").write_text(f"{sentences(11)}\n\n{QUESTION.upper().replace(' ', '  ')}\n\n{sentences(12)}")
    (web / "page.html").write_text(f"<title>Ask anna.novak@acme-tools.com</title><p>{sentences(14)}</p>")
    (web / "mail.txt").write_text(
        f"{sentences(13)}\n\nWrite to anna.novak@acme-tools.com or call (650) 253-0000 in the day."
    )
    (web / "fragment.txt").write_text("Questions to anna.novak@acme-tools.com. " * 8)
    (web / "records.jsonl").write_text(
        "\n".join(
            json.dumps({"text": sentences(seed), "url": url, "licence": licence})
            for seed, url, licence in (
                (20, "https://sub.BAD.test:8080/x", "MIT"),
                (21, "https://casino.test/x", "MIT"),
                (22, "https://good.test/x", "The MIT License"),
                (23, "https://good.test/y", "unknown"),
                (24, "https://good.test/z", "CC-BY-NC-4.0"),
            )
        )
    )
    (code / "own.py").write_text(program(3))
    (code / "theirs.py").write_text(GPL + program(5))
    (root / "set.jsonl").write_text(json.dumps({"id": "q7", "text": QUESTION}))
    (root / "domains").write_text("casino.test\n")
    shared = {"kind": "folder", "language": "en", "licence": "MIT"}
    sources = Step(
        "sources",
        SourcesConfig(
            sources=[
                {"name": "web", "path": str(web), "domain": "web", "licence_field": "licence", **shared},
                {"name": "code", "path": str(code), "domain": "code", **shared},
            ],
            evaluations=[{"name": "exam", "path": str(root / "set.jsonl")}],
            blocklists=[{"name": "games", "path": str(root / "domains")}],
        ),
        str(root / "data"),
        leaf=True,
    )
    config = CorpusConfig(licences=("@permissive",), safety={"blocks": {"domains": ["bad.test"]}})
    step = Step("corpus", config, str(root / "data"), (sources,))
    return curate(step, acquire(sources, root))


def rejected(corpus: Artifact) -> dict[str, tuple[str, str]]:
    return {row["url"].partition(":")[2]: (row["reason"], row["value"]) for row in rows(corpus, "rejected")}


def test_addresses_licences_and_items_keep_documents_out_with_their_reason(corpus):
    found = list(rejected(corpus).values())
    reasons = corpus.statistics["rejected_by_reason"]
    assert reasons["blocked_domain"] == 3
    assert ("blocked_domain", "casino.test (games)") in found
    assert reasons["licence_unknown"] == 1
    assert reasons["licence_not_allowed"] == 2  # NC, and the program that says GPL
    assert rejected(corpus)["theirs.py"] == ("licence_not_allowed", "GPL-2.0-only")
    reason, value = rejected(corpus)["dirty.txt"]
    assert reason == "contaminated"
    assert value.startswith("exam q7: ")
    assert {row["licence"] for row in rows(corpus, "documents")} == {"MIT"}


def test_a_hit_is_a_row_with_its_passage(corpus):
    (hit,) = rows(corpus, "contamination")
    assert (hit["set"], hit["item"], hit["share"], hit["source"]) == ("exam", "q7", 1.0, "web")
    assert hit["passage"].startswith("A  FARMER")


def test_personal_data_are_masked_and_counted(corpus):
    (text,) = [row["text"] for row in rows(corpus, "documents") if row["url"] == "web:mail.txt"]
    assert text.endswith("Write to <PII:EMAIL> or call <PII:PHONE> in the day.")
    assert corpus.statistics["masked"] == {"EMAIL": 1, "PHONE": 1}


def test_a_title_is_masked(corpus):
    (meta,) = [row["meta"] for row in rows(corpus, "documents") if row["url"] == "web:page.html"]
    assert json.loads(meta) == {"title": "Ask <PII:EMAIL>"}


def test_what_is_kept_of_a_rejected_document_is_masked_too(corpus):
    (row,) = [row for row in rows(corpus, "rejected") if row["url"] == "web:fragment.txt"]
    assert row["stage"] == "quality"
    assert row["text_head"] == " ".join(["Questions to <PII:EMAIL>."] * 8)
