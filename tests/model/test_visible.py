"""What is shown of hostile text: nothing is obeyed and nothing is lost, whichever outlet it goes to."""

from __future__ import annotations

import markdown_it
import pytest
from lxml import html as lxml_html

from model.visible import escape, markdown, visible
from tasks.gate import verdict
from tasks.report import html
from tasks.report.blocks import Code, Document, Excerpt, Fold, Headline, Pair, Prose, Section, Table, Verbatim
from tasks.report.markdown import markdown as report

HOSTILE = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "[click](javascript:alert(1))",
    "![pixel](http://evil/pixel.png)",
    "a | b | c",
    "``` `code` ```",
    "# heading",
    "**bold** _it_ ~~gone~~",
    "<http://evil>",
    "http://evil/x",
    "\x1b]8;;http://evil\x1b\\\\x \u202egpj\x9b2J",
    "> quote\n\n- list\n1. one",
    "&lt;b&gt; &#60;b&#62;",
]
CHANGING = ("\x1b", "\x9b", "\u202e")


def document(text: str) -> Document:
    held = Verbatim(text)
    blocks = [
        Prose(held),
        Table(("one", "two"), [[held, "fine"]]),
        Pair((held, held), (text, text), held),
        Excerpt(held, [(text, True)], held),
        Code(text),
        Fold(held, [Prose("in it")]),
    ]
    return Document("T", "s", "l", Headline([]), [Section("key", "Title", "", blocks)])


@pytest.mark.parametrize("text", HOSTILE)
def test_a_page_shows_a_text_and_obeys_none_of_it(text):
    page = html.page(document(text))
    tree = lxml_html.document_fromstring(page)
    assert not tree.xpath("//script | //img | //*[@onerror]")
    assert [link.get("href") for link in tree.xpath("//a")] == ["#key"]
    assert not [character for character in CHANGING if character in page]
    shown = tree.text_content()
    assert visible(text) in shown
    assert lxml_html.fragment_fromstring(f"<p>{escape(text)}</p>").text_content() == visible(text)


@pytest.mark.parametrize("text", HOSTILE)
def test_a_markdown_artifact_shows_a_text_and_obeys_none_of_it(text):
    gate = {
        "expectations": [
            {"sentence": "S", "expected": text, "observed": text, "remedy": "do", "success": success}
            for success in (True, False)
        ]
    }
    for written in (report(document(text)), verdict("gate", gate, "page")):
        page = markdown_it.MarkdownIt("gfm-like", {"html": True, "linkify": False}).render(written)
        tree = lxml_html.fragment_fromstring(page, create_parent="div")
        assert not tree.xpath("//a | //img | //script | //del | //*[@onerror]")
        # three headings of our own at most, and no cell more than ours
        assert {len(row.xpath("./td")) for row in tree.xpath("//tbody/tr")} <= {0, 2, 3, 4}
        assert not [character for character in CHANGING if character in written]


def test_a_bare_address_does_not_become_a_link_by_itself():
    """As it does where a reader of markdown looks for `http://`."""
    assert "://" not in markdown("see https://evil/x and <ftp://y>")


def test_a_line_of_markdown_says_what_the_text_says():
    for text in HOSTILE:
        page = markdown_it.MarkdownIt("gfm-like", {"linkify": False}).render(f"x {markdown(text)}")
        told = lxml_html.fragment_fromstring(page, create_parent="div").text_content().strip()
        assert told == f"x {' '.join(visible(' '.join(text.split())).split())}"
