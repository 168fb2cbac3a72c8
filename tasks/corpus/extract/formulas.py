"""Formulas in HTML, whichever way a page shows them: as LaTeX."""

from __future__ import annotations

import re
from itertools import islice
from urllib.parse import parse_qs, urlsplit

from lxml import etree

from tasks.corpus.extract.markup import parse
from tasks.corpus.extract.mathml import latex
from tasks.corpus.extract.passage import ExtractionError
from tasks.corpus.wordlist import words

# What MathJax and KaTeX draw; the source stands beside it or in an attribute.
DRAWN = words(
    "mathjax mathjax_display mathjax_preview mathjax_svg mathjax_svg_display mathjax_chtml mjx-chtml mjx-math"
)
_SOURCES = ("data-latex", "data-tex", "data-katex", "data-expr")
_IMAGE_CLASSES = words("math latex tex mwe-math-fallback-image-inline mwe-math-fallback-image-display")
_IMAGE_SERVICES = re.compile(r"latex|codecogs|mathtex|mimetex|/math/render/|chart\?.*cht=tx", re.IGNORECASE)
_MATHML = re.compile(r"(?:\A|\}|:)math\Z")
_STYLE = re.compile(r"\A\{\\(?:displaystyle|textstyle)\s+(.*)\}\Z", re.DOTALL)


def formula(element: etree._Element, tag: str) -> tuple[str, bool]:
    """The LaTeX of an element that is a formula, and whether it stands on lines of its own; '' where it is none."""
    found, display = _found(element, tag)
    return _STYLE.sub(r"\1", found.strip()).strip(), display


def drawn(element: etree._Element, names: set[str]) -> bool:
    """Whether an element, whose class names are `names`, is the picture of a formula whose source stands beside it."""
    if "katex-html" in names:
        return _beside_mathml(element)
    if DRAWN.isdisjoint(names):
        return False
    following = islice(element.itersiblings(), 2)
    return any((sibling.get("type") or "").startswith("math/tex") for sibling in following)


def _beside_mathml(element: etree._Element) -> bool:
    neighbours = (element.getprevious(), element.getnext())
    return any(
        _MATHML.search(str(inner.tag)) for one in neighbours if one is not None for inner in islice(one.iter(), 5)
    )


def _found(element: etree._Element, tag: str) -> tuple[str, bool]:
    if tag == "math" or tag.endswith("}math"):
        return latex(element), element.get("display") == "block"
    if tag == "script":
        return element.text or "", "mode=display" in (element.get("type") or "")
    if tag == "img":
        return _image(element)
    if tag in ("span", "div"):
        for name in _SOURCES:
            if element.get(name):
                return element.get(name, ""), tag == "div"
        if element.get("data-mathml"):
            return _attribute(element.get("data-mathml", "")), tag == "div"
    return "", False


def _attribute(markup: str) -> str:
    try:
        root = parse(markup)
    except ExtractionError as error:
        if error.kind == "markup":  # past a limit, as that of attributes, within an attribute too
            raise
        return ""
    math = None if root is None else next(root.iter("math"), None)
    return "" if math is None else latex(math)


def _image(element: etree._Element) -> tuple[str, bool]:
    alt, address = (element.get("alt") or "").strip(), element.get("src") or ""
    names = set((element.get("class") or "").lower().split())
    service = _IMAGE_SERVICES.search(address[:2000])
    if _IMAGE_CLASSES.isdisjoint(names) and not service:
        return "", False
    parent = element.getparent()
    if _beside_mathml(element):
        return "", False  # the picture for those whose browser shows no MathML
    if not alt and service:
        try:
            query = parse_qs(urlsplit(address).query)
        except ValueError:
            return "", False
        alt = next((query[name][0] for name in ("latex", "tex", "chl") if query.get(name)), "")
    shown = parent is not None and parent.tag in ("div", "p") and "math" in (parent.get("class") or "").split()
    return alt.strip("$"), shown or "\\begin" in alt
