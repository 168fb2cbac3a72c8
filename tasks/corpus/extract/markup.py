"""HTML to lxml's tree, whatever a page holds: markup that no page needs is refused before it is parsed."""

from __future__ import annotations

import re

from lxml import etree

from tasks.corpus.extract.passage import ExtractionError

# libxml2 holds every attribute of a tag against all others: 1,000 take it a millisecond, 200,000 some minutes. Ours.
ATTRIBUTES_MAX = 1_000
# Start, end and other tags together. Ours.
TAGS_MAX = 1_000_000
# For every end tag the parser may look through all elements that are open. Ours; browsers stop nesting at 512.
DEPTH_MAX = 10_000

# How HTML's own tokenizer (WHATWG 13.2.5) tells tags from text. Every repetition is possessive: one pass over the page
# without a way back, from its start to the first tag with too many attributes.
_ATTRIBUTE = r"""[\s/]*+=?[^\s/>=]++(?:\s*+=\s*+(?:"[^"]*+"|'[^']*+'|[^\s>"'][^\s>]*+)?)?+"""
_REST = rf"(?:{_ATTRIBUTE}){{0,{ATTRIBUTES_MAX}}}+[\s/=]*+>"
_RAW = "|".join(  # elements that hold text alone, whatever it looks like
    rf"<{name}(?=[\s/>]){_REST}(?:(?<=/>)|(?:[^<]++|<(?!/{name}))*+)"
    for name in ("script", "style", "textarea", "title", "xmp", "iframe", "noembed", "noframes")
)
_COMMENT = r"<!--(?:-?>|(?:[^-]++|-(?!-!?>))*+)"
_SOUND = re.compile(rf"(?:[^<]++|{_COMMENT}|{_RAW}|<[a-z][^\s/>]*+{_REST}|<(?![a-z]|!--))*+", re.IGNORECASE)
_TOO_MANY = re.compile(rf"<[a-z][^\s/>]*+(?:{_ATTRIBUTE}){{{ATTRIBUTES_MAX + 1}}}", re.IGNORECASE)


def parse(text: str) -> etree._Element | None:
    """The root of a page; None where it holds nothing. Raises ExtractionError where it does not parse or its markup
    passes a limit."""
    if text.count("<") > TAGS_MAX:
        raise ExtractionError(f"over {TAGS_MAX:,} tags", "markup")
    if _TOO_MANY.match(text, _SOUND.match(text).end()):  # type: ignore[union-attr]
        raise ExtractionError(f"a tag with over {ATTRIBUTES_MAX:,} attributes", "markup")
    # NUL ends a string for libxml2, and a lone surrogate is no UTF-8.
    data = text.replace("\0", "").encode("utf-8", "replace")
    parser = etree.HTMLParser(huge_tree=True, remove_comments=True, remove_pis=True, encoding="utf-8")
    deep = None
    try:
        root = etree.fromstring(data, parser)
        if any(error.type == etree.ErrorTypes.ERR_RESOURCE_LIMIT for error in parser.error_log):
            # libxml2 builds no tree of more than 2,048 levels and drops what follows; it still tells of every tag.
            deep = _Deep()
            root = etree.fromstring(data, etree.HTMLParser(target=deep, huge_tree=True, encoding="utf-8"))
    except etree.XMLSyntaxError as error:
        if deep is not None and deep.depth > DEPTH_MAX:
            raise ExtractionError(f"over {DEPTH_MAX:,} elements within one another", "markup") from None
        if not text.strip():
            return None
        raise ExtractionError(f"not HTML: {error}") from error
    return root


class _Deep:
    """Builds a tree as deep as the page is, to DEPTH_MAX."""

    def __init__(self) -> None:
        self._tree, self.depth = etree.TreeBuilder(), 0

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        self.depth += 1
        if self.depth > DEPTH_MAX:
            raise ValueError  # ends the parser
        self._tree.start(tag, attributes)

    def end(self, tag: str) -> None:
        self.depth -= 1
        self._tree.end(tag)

    def data(self, text: str) -> None:
        self._tree.data(text)

    def close(self) -> etree._Element:
        return self._tree.close()
