"""HTML to Markdown-like text: headings, lists, tables, code with its lines, formulas as LaTeX; navigation dropped.

One walk over lxml's tree by events (no recursion: a page may nest as deep as it likes). Formulas come from MathML
annotations or `alttext`, from MathML itself, from `math/tex` scripts and from the `alt` of rendered images.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import islice

from lxml import etree

from tasks.corpus.extract.formulas import drawn, formula
from tasks.corpus.extract.markup import parse
from tasks.corpus.extract.passage import Passage
from tasks.corpus.wordlist import words

DROPPED = words(
    "script style nav footer aside button noscript template svg select input iframe object embed head "
    "audio video canvas dialog"
)
DROPPED_ROLES = {"navigation", "search", "contentinfo", "complementary", "banner"}
# Class or id tokens of navigation in the generators that technical documentation is made with.
DROPPED_NAMES = words(
    "sphinxsidebar related headerlink navheader navfooter toc topnav sidebar breadcrumb breadcrumbs copiable-anchor "
    "viewcode-link copybutton linenos lineno mw-editsection skip-link site-footer cookie-banner "
    "mw-jump-link noprint catlinks printfooter"
)
# Parts of class and id names ("site-nav", "cookie_consent") of what surrounds the text of a page anywhere on the web.
FURNITURE = words(
    "nav navbar navbox navigation menu submenu sidebar breadcrumb breadcrumbs pagination pager cookie cookies gdpr "
    "consent share sharing sharebar social comments commentlist disqus respond newsletter subscribe advert adverts ads "
    "advertisement sponsored promo popup modal related recommended footer login signup searchbox searchform skip"
)
KEPT = {"h1", "pre", "math", "main", "article"}
_PARTS = re.compile(r"[a-z]+")
CONTAINERS = words("div section ul ol dl table p header")
# Furniture holds less than this share of a page's text, and no heading of the page, program or formula. Ours.
FURNITURE_SHARE = 0.4
# Elements that look like furniture and hold too much: after so many the names of this page are believed no more, so
# that a hostile page takes no quadratic time. Ours.
FURNITURE_DOUBTS = 50
_LANGUAGE = re.compile(
    r"(?:\A|[\s;])(?:(?:language|lang|highlight-source|highlight|sourceCode|brush:)[-\s]*)([A-Za-z][A-Za-z0-9+#]{0,20})(?=[\s;]|\Z)"
)
_NAME = re.compile(r"[a-z][a-z0-9+#_-]{0,20}")
_NO_LANGUAGE = words("default none text plain txt plaintext nohighlight notranslate")
BLOCKS = words(
    "address article blockquote body center dd details div dl dt fieldset figcaption figure form h1 h2 h3 h4 h5 h6 "
    "header hr li main ol p section summary table tbody tfoot thead tr ul caption"
)
HEADINGS = {f"h{level}": "#" * level for level in range(1, 7)}
INLINE_CODE = {"code", "tt", "kbd", "samp"}
_SPACE = re.compile(r"[ \t\r\n\f\v\xa0\u200b]+")
_CJK_GAP = re.compile(
    r"(?<=[\u3001-\u303f\u4e00-\u9fff\uff00-\uffef]) ?\n ?(?=[\u3001-\u303f\u4e00-\u9fff\uff00-\uffef])"
)
_BREAK = "\u2028"
_HIDDEN = re.compile(r"display\s*:\s*none", re.IGNORECASE)
# A run of at least this many short blocks that are nearly all link is a menu. Ours.
MENU_RUN, MENU_BLOCK_CHARS, MENU_LINK_SHARE = 4, 120, 0.8


@dataclass
class _Block:
    text: str
    kind: str
    """`text`, `heading`, `item`, `row`, `code` or `math`."""
    linked: int
    """Characters within links."""


def extract(text: str) -> list[Passage]:
    """The main text of one page; [] where it has none. Raises ExtractionError as `markup.parse` does."""
    root = parse(text)
    if root is None:
        return []
    title = "".join(root.xpath("string(//head/title)"))[:300]
    main = _main(root)
    blocks = _without_menus(_Walk(sum(map(len, main.itertext()))).run(main))
    joined = _join(blocks)
    return [Passage(joined, _SPACE.sub(" ", title).strip())] if joined else []


def _main(root: etree._Element) -> etree._Element:
    """The one element that says it is the main content, or the whole page."""
    for path in ("//*[@role='main']", "//main", "//article"):
        found = root.xpath(path)
        if len(found) == 1:
            return found[0]
    return root


def _dropped(element: etree._Element, tag: str) -> bool:
    """Whether an element is no part of the text by what it is or by a name that says so outright."""
    if tag in DROPPED:
        return not (tag == "script" and (element.get("type") or "").startswith("math/tex"))
    attributes = element.attrib
    if tag == "mjx-math":
        return True
    if not attributes:
        return False
    if attributes.get("role") in DROPPED_ROLES or "hidden" in attributes:
        return True
    names = set(f"{attributes.get('class', '')} {attributes.get('id', '')}".lower().split())
    return bool(names) and (not DROPPED_NAMES.isdisjoint(names) or drawn(element, names))


class _Walk:
    def __init__(self, page_chars: int) -> None:
        self.page_chars, self.doubts = page_chars, 0
        self.blocks: list[_Block] = []
        self.inline: list[str] = []
        self.linked = 0
        self.prefix, self.kind = "", "text"
        self.links = self.rows = 0

    def run(self, root: etree._Element) -> list[_Block]:
        walk = etree.iterwalk(root, events=("start", "end"))
        skipped = None
        for event, element in walk:
            tag = element.tag
            if not isinstance(tag, str):
                if event == "end" and element.tail:
                    self.say(element.tail)
                continue
            if event == "start":
                if self.start(element, tag):
                    walk.skip_subtree()
                    skipped = element
                continue
            if element is skipped:
                skipped = None
            else:
                self.end(tag)
            if element is not root and element.tail:
                self.say(element.tail)
        self.flush()
        return self.blocks

    def say(self, text: str) -> None:
        self.inline.append(text)
        if self.links:
            self.linked += len(text.strip())

    def start(self, element: etree._Element, tag: str) -> bool:
        """Handle an opening tag; True where everything within has been dealt with."""
        if _dropped(element, tag) or self.furniture(element, tag):
            return True
        source, display = formula(element, tag)
        if source:
            if display and not self.rows:
                self.flush()
                self.blocks.append(_Block(f"$$\n{source}\n$$", "math", 0))
            else:
                self.say(f"${source}$")
            return True
        if tag == "math":
            return True  # an empty one, and so are those within it
        if tag == "pre":
            code = "".join(_code(element)).strip("\n").replace("\xa0", " ").rstrip()
            self.flush()
            if code:
                self.blocks.append(_Block(f"```{_language(element)}\n{code}\n```", "code", 0))
            return True
        if tag in INLINE_CODE:
            code = _SPACE.sub(" ", "".join(element.itertext())).strip()
            if code:
                self.say(code if self.prefix.startswith("#") or tag != "code" else f"`{code}`")
            return True
        if tag == "a":
            self.links += 1
        elif tag == "br":
            self.inline.append(" " if self.rows else _BREAK)
        elif tag in ("sup", "sub") and not len(element) and len((element.text or "").strip()) == 1:
            self.inline.append("^" if tag == "sup" else "_")
        elif tag in ("td", "th"):
            self.inline.append(" | ")
        elif tag in BLOCKS:
            self.open_block(tag)
        if element.text:
            self.say(element.text)
        return False

    def furniture(self, element: etree._Element, tag: str) -> bool:
        """Whether an element, by its looks, stands around the text; looks that what it holds belies count as doubts."""
        if self.doubts > FURNITURE_DOUBTS:
            return False
        attributes = element.attrib
        style, named = attributes.get("style", ""), f"{attributes.get('class', '')} {attributes.get('id', '')}"
        if "none" in style and _HIDDEN.search(style):
            return not self.holds(element, {"math"}, 1.0)  # MathML is hidden where a picture of it is shown
        # A page header is navigation unless it holds the page's own heading.
        if tag == "header" or named == "header ":
            return not self.holds(element, {"h1", "h2"}, 1.0)
        # A search box, or the one form that some generators (ASP.NET) put a whole page in.
        if tag == "form":
            return not self.holds(element, KEPT, FURNITURE_SHARE)
        if tag not in CONTAINERS or named == " " or FURNITURE.isdisjoint(_PARTS.findall(named.lower())):
            return False
        return not self.holds(element, KEPT, FURNITURE_SHARE)

    def holds(self, element: etree._Element, tags: set[str], share: float) -> bool:
        """Whether one of `tags` or more than this share of the page's text lies within `element`."""
        chars = 0
        # Not `iter`, which takes the longer for an element the deeper it lies.
        for _, inner in etree.iterwalk(element, events=("start",)):
            chars += len(inner.text or "") + (len(inner.tail or "") if inner is not element else 0)
            if inner.tag in tags or chars > share * self.page_chars:
                self.doubts += 1
                return True
        return False

    def open_block(self, tag: str) -> None:
        if self.rows and tag not in ("table", "tr", "tbody", "thead", "tfoot"):
            self.inline.append(" ")
            return
        self.flush()
        if tag in HEADINGS:
            self.prefix, self.kind = f"{HEADINGS[tag]} ", "heading"
        elif tag == "li":
            self.prefix, self.kind = "- ", "item"
        elif tag == "tr":
            self.rows += 1
            self.kind = "row"

    def end(self, tag: str) -> None:
        if tag == "a":
            self.links -= 1
        elif tag == "tr" and self.rows:
            self.flush()
            self.rows -= 1
        elif tag in BLOCKS and not self.rows:
            self.flush()
            self.prefix, self.kind = "", "text"

    def flush(self) -> None:
        if not self.inline:
            return
        text = _SPACE.sub(" ", _CJK_GAP.sub("", "".join(self.inline))).strip()
        if self.kind == "row":
            text = text.strip("| ")
        text = "\n".join(line.strip() for line in text.split(_BREAK)).strip()
        if text:
            self.blocks.append(_Block(self.prefix + text, self.kind, self.linked))
            if self.kind == "item":
                self.prefix, self.kind = "", "text"
        self.inline, self.linked = [], 0


def _code(element: etree._Element) -> list[str]:
    """The text of a `pre`, line breaks kept, line numbers left out."""
    parts: list[str] = []
    walk = etree.iterwalk(element, events=("start", "end"))
    for event, inner in walk:
        if event == "end":
            if inner is not element and inner.tail:
                parts.append(inner.tail)
        elif inner is not element and _dropped(inner, str(inner.tag)):
            walk.skip_subtree()
        elif inner.tag == "br":
            parts.append("\n")
        elif inner.text:
            parts.append(inner.text)
    return parts


def _language(element: etree._Element) -> str:
    """The programming language that a `pre`, the `code` in it or what stands around it names, or ''."""
    around = [element, *islice(element.iterchildren("code"), 1), *islice(element.iterancestors(), 2)]
    for one in around:
        found = _LANGUAGE.search((one.get("class") or "")[:300])
        name = (found.group(1) if found else one.get("data-lang") or one.get("data-language") or "").lower()
        if name:
            return "" if name in _NO_LANGUAGE or not _NAME.fullmatch(name) else name
    return ""


def _without_menus(blocks: list[_Block]) -> list[_Block]:
    kept: list[_Block] = []
    run: list[_Block] = []
    for block in [*blocks, _Block("", "end", 0)]:
        bare = len(block.text.removeprefix("- "))
        if block.kind in ("item", "text") and bare < MENU_BLOCK_CHARS and block.linked > MENU_LINK_SHARE * bare:
            run.append(block)
            continue
        if len(run) < MENU_RUN:
            kept += run
        run = []
        kept.append(block)
    return kept[:-1]


def _join(blocks: list[_Block]) -> str:
    """Blocks a blank line apart; list items and table rows follow one another."""
    text: list[str] = []
    before = ""
    for block in blocks:
        if text:
            text.append("\n" if block.kind == before and block.kind in ("item", "row") else "\n\n")
        text.append(block.text)
        before = block.kind
    return "".join(text)
