"""E-mail and IP addresses of somebody: those that are reserved, private or meant as examples are left alone."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator

import phonenumbers

from tasks.corpus.wordlist import words

Span = tuple[int, int, str]
"""(start, end, kind) of something found in a text."""

# RFC 6531 adds letters of any script; those of scripts that part words by blanks, or the prose before would be taken.
_LETTERS = "".join(sign for sign in map(chr, range(0xC0, 0x530)) if sign.isalpha())
_LOCAL = f"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.!#$%&'*+-/=?^_`{{|}}~{_LETTERS}"
# What RFC 5322 allows in a local part but a text means as something else.
_AROUND = "'`*=/{|}!#$&?^~."
_DOMAIN = re.compile(
    rf"(?:[A-Za-z0-9{_LETTERS}](?:[A-Za-z0-9{_LETTERS}-]{{0,61}}[A-Za-z0-9{_LETTERS}])?\.){{1,8}}"
    r"(xn--[A-Za-z0-9-]{2,59}|[A-Za-z]{2,24}|рф|укр)"
)
_MAIL_CHARS = 64  # of a local part, RFC 5321 4.5.3.1.1
# Two-letter ends are countries; of the others those that mail really uses, so that `a@b.T` and `x@2x.png` are none.
_TOP = words(
    "com org net edu gov mil int info biz name pro aero coop museum mobi asia cat jobs tel travel app dev cloud "
    "online site xyz top club shop store tech blog live email world life systems solutions network agency digital "
    "media studio group team work works space website global international company center codes software design "
    "fund law bank insurance consulting academy school university science berlin london paris nyc wiki foundation "
    "engineering health care news press ngo ong page cn hk eu uk"
) | {region.lower() for region in phonenumbers.SUPPORTED_REGIONS}
# RFC 2606 and 6761, and what manuals write in their place.
_EXAMPLES = words("example.com example.org example.net example.edu domain.com yourdomain.com mydomain.com email.com")
_HOSTING = words("git hg svn")  # the account of `git@host:path`: everybody's

_IPV4_HEART = re.compile(r"\.[0-9]{1,3}\.[0-9]{1,3}\.[0-9]{1,3}")
_IPV4 = re.compile(r"(?<![0-9A-Za-z_.+-])(?<![0-9][,:])(?:[0-9]{1,3}\.){3}[0-9]{1,3}(?![0-9A-Za-z_-]|\.[0-9A-Za-z])")
_NO_ADDRESS = re.compile(
    r"(?:\bv(?:er(?:sion|\.)?)?|\brelease|\bbuild|\brev(?:ision)?|§|\bsections?|\bsec\.|\bchapter|\bfigure|\btable|"
    r"\brfc|\boid|[=~<>!^]=|版本|第)[ :=\"'(]*$",
    re.IGNORECASE,
)
_ADDRESS = re.compile(
    r"\b(?:ip|ipv4|address|addr|host|server|ping|dns|inet|gateway|from|connect|ssh)\b|地址", re.IGNORECASE
)
_IPV6_HEART = re.compile(r":[0-9A-Fa-f]{0,4}:")
_IPV6_CHARS = "0123456789abcdefABCDEF:."
_IPV6_MAX = 45
_GLOBAL_UNICAST = ipaddress.IPv6Network("2000::/3")
# Resolvers that everybody types, as StarCoder leaves them (arXiv 2305.06161, section 4.3), and what manuals count up.
_KNOWN = words(
    "1.2.3.4 8.8.8.8 8.8.4.4 1.1.1.1 1.0.0.1 9.9.9.9 149.112.112.112 208.67.222.222 208.67.220.220 4.2.2.2 "
    "114.114.114.114 114.114.115.115 223.5.5.5 223.6.6.6 119.29.29.29 2001:4860:4860::8888 2001:4860:4860::8844 "
    "2606:4700:4700::1111 2606:4700:4700::1001"
)


def emails(text: str) -> Iterator[Span]:
    """Addresses that mail could reach."""
    at = text.find("@")
    while at >= 0:
        window = text[max(0, at - _MAIL_CHARS - 1) : at]
        local = window[len(window.rstrip(_LOCAL)) :].lstrip(_AROUND)
        # Within `https://user:password@host` or `key=a@b` the address begins after the last such sign.
        local = re.split(r"[=/|{}]", local)[-1].lstrip(_AROUND)
        found = _DOMAIN.match(text, at + 1) if 0 < len(local) <= _MAIL_CHARS and local[-1] != "." else None
        if found and _mail(local, found, text, at):
            yield at - len(local), found.end(), "EMAIL"
            at = text.find("@", found.end())
        else:
            at = text.find("@", at + 1)


def _mail(local: str, domain: re.Match[str], text: str, at: int) -> bool:
    host = domain[0].lower()
    after = text[domain.end() : domain.end() + 1]
    if after in "@_(" and after:
        return False
    # A path after the host is a URL's or a repository's; a colon before the local part is a user and a password.
    if text[max(0, at - len(local) - 3) : at - len(local)] == "://":
        return False
    if local.lower() in _HOSTING or not any(map(str.isalnum, local)):
        return False
    top = domain[1].lower()
    if not (top in _TOP or top.startswith("xn--") or not top.isascii()):
        return False
    return not any(host == example or host.endswith(f".{example}") for example in _EXAMPLES)


def ipv4s(text: str) -> Iterator[Span]:
    """Public IPv4 addresses."""
    for heart in _IPV4_HEART.finditer(text):
        before = text[max(0, heart.start() - 3) : heart.start()]
        found = _IPV4.match(text, heart.start() - len(before) + len(before.rstrip("0123456789")))
        if found and public(found[0]) and not _version(text, found):
            yield found.start(), found.end(), "IP"


def _version(text: str, found: re.Match[str]) -> bool:
    """Whether four numbers are a version or a section rather than an address."""
    before = text[max(0, found.start() - 32) : found.start()]
    if _NO_ADDRESS.search(before):
        return True
    # Versions and sections count from one; fewer than one public address in a hundred has three bytes below 32.
    small = sum(int(byte) < 32 for byte in found[0].split(".")) >= 3
    return small and not _ADDRESS.search(before)


def ipv6s(text: str) -> Iterator[Span]:
    """Public IPv6 addresses."""
    reached = 0
    for heart in _IPV6_HEART.finditer(text):
        if heart.start() < reached:
            continue
        before = text[max(reached, heart.start() - _IPV6_MAX) : heart.start()]
        start = heart.start() - (len(before) - len(before.rstrip(_IPV6_CHARS)))
        after = text[heart.end() : heart.end() + _IPV6_MAX]
        reached = heart.end() + len(after) - len(after.lstrip(_IPV6_CHARS))
        whole = text[start:reached].rstrip(".")
        if start and (text[start - 1].isalnum() or text[start - 1] in "_-"):
            continue
        if text[reached : reached + 1].isalnum() or text[reached : reached + 1] == "_":
            continue
        candidate = whole.rstrip(":") if not whole.endswith("::") else whole
        # `a::b` is a name in C++: an address that says where somebody is has a digit and three groups at least.
        groups = [group for group in candidate.split(":") if group]
        if len(groups) >= 3 and any(sign.isdigit() for sign in candidate) and public(candidate):
            yield start, start + len(candidate), "IP"


def public(address: str) -> bool:
    """Whether `address` is well formed and of somebody: not private, reserved, of documentation or a known resolver."""
    if len(address) > _IPV6_MAX or address in _KNOWN:
        return False
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return False
    # Of IPv6 only 2000::/3 has been given out (RFC 4291): `1:2:3:4:5:6:7:8` and `dead:beef::1` are nobody's.
    given = parsed.version == 4 or parsed in _GLOBAL_UNICAST
    return given and parsed.is_global and not parsed.is_multicast
