"""Bytes to text: what the bytes are, never what they say they are."""

from __future__ import annotations

import codecs
import re

from resiliparse.parse.encoding import detect_encoding, map_encoding_to_html5

# Names of character sets only: Python also knows codecs that are none (unicode_escape, punycode).
_DECLARED = re.compile(
    rb"""(?:charset|encoding|coding)\s*[=:]\s*["']?\s*"""
    rb"""((?:utf|iso|windows|cp|gb|big5|(?:x-)?euc|shift|(?:x-)?sjis|koi8|ks_c|latin|ascii|us-ascii|mac|tis)[A-Za-z0-9_-]{0,20})""",
    re.IGNORECASE,
)
_MARKS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
# Python's codecs of these names are stricter than the web's (WHATWG Encoding, 4.2), which hold vendors' letters too.
_WIDER = {"shift_jis": "cp932", "euc_kr": "cp949", "gbk": "gb18030", "big5": "big5hkscs", "iso8859-11": "cp874"}
# Where more bytes than this share are wrong in another encoding than UTF-8, it is not that encoding. Ours.
WRONG_MAX = 0.005
# A text in which more than this share of characters came out as U+FFFD or NUL was no text. Ours.
DAMAGED_MAX = 0.05


class NotTextError(ValueError):
    """Bytes that no encoding turns into text."""


def decode(data: bytes) -> str:
    """The text of `data`: by its byte order mark, as UTF-8, as the encoding it declares, as the one it looks like, in
    that order; bytes that fit none become U+FFFD. Raises NotTextError for binary data."""
    text = _decoded(data)
    damaged = text.count("\ufffd") + text.count("\0")
    if damaged > DAMAGED_MAX * len(text):
        raise NotTextError(f"binary data: {damaged:,} of {len(text):,} characters are no text")
    return text


def _decoded(data: bytes) -> str:
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return data.decode(encoding, "replace")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        replaced = data.decode("utf-8", "replace")
    found = _DECLARED.search(data[:2048])
    declared = _named(found.group(1).decode("ascii").lower()) if found else ""
    # A few wrong bytes in a long UTF-8 text are damage, not another encoding; in ASCII that is declared to be another
    # encoding they are its letters.
    other = declared and not declared.startswith("utf") and replaced.replace("\ufffd", "").isascii()
    if not other and replaced.count("\ufffd") * 1000 < len(replaced):
        return replaced
    names = [name for name in (declared, _named(detect_encoding(data) or "")) if name]
    for errors in ("strict", "replace"):
        for name in names:
            try:
                text = data.decode(name, errors)
            except UnicodeDecodeError:
                continue
            if text.count("\ufffd") <= WRONG_MAX * len(text):
                return text
    return replaced


def _named(label: str) -> str:
    """Python's name of the encoding that a label means on the web, where `iso-8859-1` and `ascii` are windows-1252 and
    `gb2312` is GB 18030; '' where there is none."""
    name = map_encoding_to_html5(label, fallback_utf8=False)
    if name is None:
        try:
            name = codecs.lookup(label).name  # Python's own spellings, as its programs declare them: `latin-1`
        except LookupError:
            return ""
        name = map_encoding_to_html5(name, fallback_utf8=False) or name
    return _WIDER.get(name, name)
