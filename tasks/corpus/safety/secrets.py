"""Keys, tokens and passwords: by the forms that their issuers give them, and by what they are assigned to."""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections import Counter
from collections.abc import Iterator

from tasks.corpus.safety.addresses import Span

# (what every such token holds, how many characters before that it begins, the whole of it). Each has a bounded length
# and begins where no such character stands before, so that a hostile text is read once.
_TOKENS: tuple[tuple[str, int, str], ...] = (
    ("AKIA", 0, r"AKIA[A-Z2-7]{16}"),  # AWS, lasting
    ("ASIA", 0, r"ASIA[A-Z2-7]{16}"),  # AWS, temporary
    *((f"gh{sort}_", 0, rf"gh{sort}_[A-Za-z0-9]{{36,251}}") for sort in "pousr"),  # GitHub
    ("github_pat_", 0, r"github_pat_[A-Za-z0-9]{22}_[A-Za-z0-9]{59}"),
    ("glpat-", 0, r"glpat-[A-Za-z0-9_\-]{20,64}"),  # GitLab
    ("xox", 0, r"xox[abeoprs]-[A-Za-z0-9\-]{10,250}"),  # Slack
    ("hooks.slack.com/", 0, r"hooks\.slack\.com/services/T[A-Z0-9]{6,12}/B[A-Z0-9]{6,12}/[A-Za-z0-9]{20,28}"),
    ("AIza", 0, r"AIza[A-Za-z0-9_\-]{35}"),  # Google
    ("GOCSPX-", 0, r"GOCSPX-[A-Za-z0-9_\-]{28}"),
    ("k_live_", 1, r"[srp]k_live_[A-Za-z0-9]{16,247}"),  # Stripe
    ("k_test_", 1, r"[sr]k_test_[A-Za-z0-9]{16,247}"),
    ("whsec_", 0, r"whsec_[A-Za-z0-9+/]{32,64}"),
    # OpenAI and its like
    ("sk-", 0, r"sk-(?:proj-|svcacct-|admin-|ant-[a-z0-9]{3,8}-|or-v1-)?[A-Za-z0-9_\-]{20,200}"),
    ("hf_", 0, r"hf_[A-Za-z]{34}"),  # Hugging Face
    ("npm_", 0, r"npm_[A-Za-z0-9]{36}"),
    ("pypi-AgE", 0, r"pypi-AgE[A-Za-z0-9_\-]{50,1000}"),
    ("SG.", 0, r"SG\.[A-Za-z0-9_\-]{22}\.[A-Za-z0-9_\-]{43}"),  # SendGrid
    ("dop_v1_", 0, r"dop_v1_[a-f0-9]{64}"),  # DigitalOcean
    ("LTAI", 0, r"LTAI[A-Za-z0-9]{12,20}"),  # Alibaba Cloud
    ("AKID", 0, r"AKID[A-Za-z0-9]{32}"),  # Tencent Cloud
    ("eyJ", 0, r"eyJ[A-Za-z0-9_\-]{8,4096}\.[A-Za-z0-9_\-]{8,8192}\.[A-Za-z0-9_\-]{16,2048}(?!-)"),  # JWT, RFC 7519
)
_EXPRESSIONS = tuple(
    (gate, before, re.compile(rf"(?<![A-Za-z0-9_\-.]){body}(?![A-Za-z0-9_])")) for gate, before, body in _TOKENS
)
_PEM = re.compile(r"-----BEGIN ((?:[A-Z0-9]{1,12} ){0,3}PRIVATE KEY(?: BLOCK)?)-----")
# What there is of a key that is cut off before its end, as documents are at a length.
_PEM_BODY = re.compile(r"(?:\s|\\[nr])*+((?:[A-Za-z0-9+/=]{20,}+(?:\s|\\[nr])*+)++)")
_URL_PASSWORD = re.compile(r"://([^\s:/@\"'<>(){}\[\]$%*]{0,64}):([^\s:/@\"'<>{}$*]{3,128})@(?=[A-Za-z0-9\[])")

# What a secret is assigned to, by the middle of the name, in the ways in which programs write it.
_PASSWORDS = ("assword", "ASSWORD", "asswd", "ASSWD", "assphrase", "密码", "口令")
_KEYS = (
    "ecret ECRET oken OKEN redential REDENTIAL piKey pikey PIKEY api-key api_key API_KEY access_key ACCESS_KEY "
    "ccessKey auth_key AUTH_KEY private_key PRIVATE_KEY rivateKey"
).split()
_TAILS = tuple((name, kind) for names, kind in ((_PASSWORDS, "PASSWORD"), (_KEYS, "KEY")) for name in names)
GATES = tuple(
    name.encode() for name in (*(gate for gate, _, _ in _TOKENS), "PRIVATE KEY", "://", *(name for name, _ in _TAILS))
)
"""What `secrets` asks a scan for, in the order of its bits."""
# From the end of the middle: the rest of the name, an assignment, a value in quotes or one that looks like no code.
_VALUE = re.compile(
    r"[A-Za-z0-9_\-]{0,24}+[\"'\]]{0,2}+[ \t]{0,8}+(?:=>|:=|==?|:|：)[ \t]{0,8}+"
    r"(?:[bruf]?(?P<quote>[\"'`])(?P<quoted>[^\"'`\r\n]{6,512})(?P=quote)"
    r"|(?P<bare>[A-Za-z0-9+/_.\-=!@#%^&*~]{12,512}+)(?=[\s,;)}\]]|$))"
)
_DUMMY = re.compile(
    r"example|sample|change.?me|your|dummy|placeholder|insert|replace|secret|passw|redacted|x{4}|\*{3}|0{6}|1234|abcd|"
    r"foobar|test|todo|fixme|token|<|>|\$\{|\$\(|\{\{|%\(|^%s$|\.\.\.",
    re.IGNORECASE,
)
# Bits per character that random letters and digits of twenty characters have at least, measured: words joined by
# signs stay below.
_ENTROPY_KEY, _ENTROPY_PASSWORD = 3.5, 2.5
_ENTROPY_HEX = 2.9  # the same for sixteen hexadecimal digits, which have 4 bits at most
# Of the most that so many characters can have: what a drawn password of 6 to 15 reaches, some of them coming twice.
_ENTROPY_SHARE = 0.85
_HEX = re.compile(r"[0-9a-f]+|[0-9A-F]+")
# Words of a name in any case, joined: `dbUser2`, `XMLReader`.
_CAMEL = re.compile(r"(?:[A-Z]?[a-z]{2,}+[0-9]{0,3}+|[A-Z]{1,5}+[0-9]{0,3}+)++")


def secrets(text: str, bits: int) -> Iterator[Span]:
    """Keys, tokens, private keys and passwords; overlapping ones may come twice. `bits` says which of GATES may be in
    the text."""
    for bit, (gate, before, expression) in enumerate(_EXPRESSIONS):
        if bits >> bit & 1:
            yield from _tokens(text, gate, before, expression)
    pem, url, *tails = (bool(bits >> bit & 1) for bit in range(len(_TOKENS), len(GATES)))
    if pem:
        yield from _private_keys(text)
    if url and "@" in text:
        for found in _URL_PASSWORD.finditer(text):
            if not _DUMMY.search(found[2]) and found[2] != found[1] and _mixed(found[2], 2):
                yield found.start(2), found.end(2), "PASSWORD"
    for (name, kind), there in zip(_TAILS, tails, strict=True):
        if there:
            yield from _assignments(text, name, kind)


def _tokens(text: str, gate: str, before: int, expression: re.Pattern[str]) -> Iterator[Span]:
    at = text.find(gate)
    while at >= 0:
        found = expression.match(text, at - before) if at >= before else None
        if found and (_json(found[0]) if gate == "eyJ" else _random(found[0])):
            yield found.start(), found.end(), "KEY"
        at = text.find(gate, found.end() if found else at + len(gate))


def _private_keys(text: str) -> Iterator[Span]:
    at = end = 0
    while found := _PEM.search(text, at):
        # An end that is not there is not there for any later beginning: nothing is looked for twice.
        end = text.find("-----END ", found.end()) if 0 <= end < found.end() else end
        if end < 0:
            rest = _PEM_BODY.match(text, found.end())
            if rest and len(rest[1]) >= 40:
                yield rest.start(1), rest.start(1) + len(rest[1].rstrip()), "KEY"
            at = found.end()
            continue
        body = text[found.end() : end]
        close = text.find("-----", end + 9)
        if len(re.sub(r"[^A-Za-z0-9+/=]", "", body)) >= 40 and 0 < close - end < 60 and "..." not in body:
            yield found.end() + len(body) - len(body.lstrip()), end - (len(body) - len(body.rstrip())), "KEY"
        at = end


def _assignments(text: str, name: str, kind: str) -> Iterator[Span]:
    at = text.find(name)
    while at >= 0:
        found = _VALUE.match(text, at + len(name))
        group = "quoted" if found and found["quoted"] is not None else "bare"
        if found and _secret(kind, found[group], group == "quoted"):
            yield *found.span(group), kind
        at = text.find(name, found.end() if found else at + len(name))


def _secret(kind: str, value: str, quoted: bool) -> bool:
    """Whether `value` is a real secret: not a word, a reference, a path or what stands for one in a manual."""
    if _DUMMY.search(value) or (quoted and (" " in value or "{" in value)):
        return False
    if kind == "PASSWORD":
        # Passwords are short: a digit or sign among letters, and no name of a variable or attribute.
        if not quoted:
            least = _ENTROPY_KEY if _name(value) else _least(_ENTROPY_KEY, value)
            return _mixed(value, 3) and not _reference(value) and "(" not in value and entropy(value) >= least
        return _mixed(value, 2) and not _identifier(value) and entropy(value) >= _least(_ENTROPY_PASSWORD, value)
    if len(value) < 16 or not _mixed(value, 2) or _identifier(value) or (not quoted and _name(value)):
        return False
    return entropy(value) >= (_ENTROPY_HEX if _HEX.fullmatch(value) else _ENTROPY_KEY)


def _least(bits: float, value: str) -> float:
    """`bits` per character, or less where `value` is too short to have so many."""
    return min(bits, _ENTROPY_SHARE * math.log2(len(value)))


def _name(value: str) -> bool:
    """Whether `value` is a name of a program, attributes of it included: `self.config.dbUser2`."""
    return all(_CAMEL.fullmatch(part) for part in re.split(r"[_.]", value) if part)


def _reference(value: str) -> bool:
    """Whether `value` is an attribute of something."""
    return "." in value and _name(value)


def _mixed(value: str, kinds: int) -> bool:
    """Whether `value` has characters of so many kinds: capitals, small letters, digits, signs; a digit or sign must be
    among them."""
    digit, sign = re.search(r"[0-9]", value), re.search(r"[^A-Za-z0-9_.\-/]", value)
    found = [re.search(r"[A-Z]", value), re.search(r"[a-z]", value), digit, sign]
    return bool(digit or sign) and sum(kind is not None for kind in found) >= kinds


def _identifier(value: str) -> bool:
    """Whether `value` is words, or words with a number, joined by signs: a name, a path, a version, a host."""
    return all(
        re.fullmatch(r"[A-Z]?[a-z]*|[A-Z]+|[0-9]{1,4}|[a-z]+[0-9]{1,2}", part)
        for part in re.split(r"[_.\-/:@ ]", value)
    )


def _random(token: str) -> bool:
    """Whether what follows a token's known beginning looks drawn and not written."""
    return (
        not _DUMMY.search(re.sub(r"_(?:test|live)_", "_", token))
        and entropy(token) >= 3.0
        and bool(re.search(r"[0-9A-Z]", token))
    )


def entropy(value: str) -> float:
    """Bits per character of `value` by the counts of its own characters (Shannon)."""
    return -sum(count / len(value) * math.log2(count / len(value)) for count in Counter(value).values())


def _json(token: str) -> bool:
    """Whether a token's head is a JSON object, as a JWT's is."""
    head = token.partition(".")[0]
    try:
        return base64.urlsafe_b64decode(head + "=" * (-len(head) % 4)).lstrip()[:1] == b"{"
    except (ValueError, binascii.Error):
        return False
