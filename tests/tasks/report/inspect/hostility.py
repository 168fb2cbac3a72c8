"""What no terminal and no page may show of a hostile text."""

from __future__ import annotations

import re
from html.parser import HTMLParser

CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff]")


class Elements(HTMLParser):
    """The elements of a page. An attribute that runs or loads something, or a link that leaves the page, is refused."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.seen.append(tag)
        assert not any(name.startswith("on") or name in ("src", "srcset") for name, _ in attrs)
        assert all((value or "").startswith("#") for name, value in attrs if name == "href")
