"""Why a rule is there and where it comes from, by the name under which its rejects are found."""

from __future__ import annotations

from dataclasses import dataclass

from model.visible import flat
from tasks.corpus.quality.route import registry
from tasks.report.rejects import STAGES


@dataclass(frozen=True)
class Explanation:
    """What a person reads of a rule before its samples."""

    why: str
    source: str = ""
    """The publication its threshold is from."""
    field: str = ""
    """Where a preset sets the threshold."""


def explanation(rule: str, stage: str) -> Explanation:
    """What is known of `rule`: from the table for a rule on the text, its stage's sentence where nothing else is."""
    if rule in _REASONS:
        return _REASONS[rule]
    known = registry().get(rule)
    if known is not None:
        return Explanation(known.why, known.source, f"corpus.<route>.{known.limit}")
    return Explanation(f"Documents dropped as {STAGES.get(stage) or flat(stage)}.")


_REASONS = {
    "unreadable": Explanation("Damaged, cut, too large or not what it says it is; the value is the reason."),
    "http_status": Explanation(
        "A crawler's record of an error or a redirect instead of a page; the value is the status."
    ),
    "media_type": Explanation("A crawler's record of something that is no text; the value is its type."),
    "no_reader": Explanation("A kind of file that nothing here reads; the value says which."),
    "markup": Explanation("Markup that no page needs and a parser chokes on; the value says which limit it passes."),
    "over_time": Explanation(
        "A worker was ended over it: it took more CPU time than a document may.", "Ours.", "corpus.document_seconds_max"
    ),
    "over_memory": Explanation(
        "A worker was ended over it: it took more memory than a document may.", "Ours.", "corpus.document_memory_max"
    ),
    "crashed": Explanation("It ended the worker that read it twice; the value has the exit code."),
    "failed": Explanation("A rule failed on it, which is a defect of the rule: report it. The value is the error."),
    "link": Explanation("A symbolic link: what it leads to is read at its own place, if it lies in the source at all."),
    "special_file": Explanation("A pipe, a socket or a device: it holds no document and is never opened."),
    "vendored": Explanation("Other people's code that lies in a project's own, and comes with its own source."),
    "empty": Explanation("A file in which extraction found no text."),
    "licence_not_allowed": Explanation("No pattern of the licence policy matches; the value is the licence."),
    "language_not_kept": Explanation("The language that was identified is none of `corpus.languages`."),
    "too_short": Explanation("Shorter than `corpus.document_chars_min`: menus, stubs, captions.", "Ours."),
    "exact_duplicate": Explanation("The same text, character for character; of equal texts one stays."),
    "blocked_domain": Explanation("Its address lies in a domain of a block list; the value is the entry that matched."),
    "blocked_url": Explanation(
        "Its address, or a word in it, is on a block list; the value is the entry that matched."
    ),
    "contaminated": Explanation(
        "Shares a run of words with an item of an evaluation set; the value says which, how much and where.",
        "GPT-3 (arXiv 2005.14165), appendix C.",
        "corpus.safety.decontamination",
    ),
    "semantic_duplicate": Explanation(
        "Its embedding is nearly that of another document; the value is the survivor and the cosine between them.",
        "SemDeDup (Abbas et al., arXiv 2303.09540).",
    ),
    "too_short_after_cuts": Explanation(
        "What was left after its repeated passages were cut out; the value is the characters left."
    ),
    "near_duplicate": Explanation(
        "Joined to a longer document by true Jaccard similarity of its shingles; below the threshold where a chain of "
        "others joins the two.",
        "Broder 1997; FineWeb (arXiv 2406.17557), 3.4.",
    ),
}
