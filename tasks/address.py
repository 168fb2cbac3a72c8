"""Addresses that stand in configurations, manifests, logs and reports: none may hold a secret."""

from __future__ import annotations

import re
from typing import Annotated, Any
from urllib.parse import unquote

from pydantic import AfterValidator, Field

# user:password@ (host:port/path@version is none); only a web address has no use for a bare user name.
_USER = re.compile(
    r"(?P<scheme>https?://)[^/?#@\s]+@|(?P<other>://)[^/?#@\s:]*:(?!\d+(?:[/?#]|$))[^?#@\s]*@",
    re.IGNORECASE,
)
# Keys of a query (or a fragment) whose value opens something: signed addresses of S3, Azure and Google among them.
_QUERY = re.compile(r"(?P<key>[?&;#][^=&;#?\s]+)=(?P<value>[^&;#\s'\"]+)")
_NAMES = re.compile(
    r"token$|secret|passw|pwd|passphrase|signature|credential|apikey|accesskey|privatekey|authorization|jwt|bearer"
)
_WHOLE = frozenset({"key", "sig", "pass", "auth", "sas"})
_AWS = re.compile(r"(?<![A-Za-z0-9])(?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Za-z0-9])")
HIDDEN = "[hidden]"


def redacted(text: str) -> str:
    """`text` with every secret that an address in it holds replaced."""
    text = _USER.sub(lambda found: f"{found['scheme'] or found['other']}{HIDDEN}@", text)
    text = _QUERY.sub(lambda found: f"{found['key']}={HIDDEN}" if _opens(found["key"]) else found[0], text)
    return _AWS.sub(HIDDEN, text)


def _opens(key: str) -> bool:
    name = re.sub(r"[^a-z]", "", unquote(key).lower())
    return name in _WHOLE or _NAMES.search(name) is not None


def keyless(text: str) -> str:
    """`text`, in which an address may stand; ValueError, which does not repeat it, where that holds a secret."""
    if redacted(text) != text:
        raise ValueError(
            "an address must not hold credentials, for it stands in records, logs and reports: take them out and give "
            "them through the environment (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY for S3, OPENK2_ENGINE_KEY for "
            "an engine)"
        )
    return text


def _web(address: str) -> str:
    if not all(one.strip().lower().startswith(("http://", "https://")) for one in address.split(",")):
        raise ValueError("an endpoint begins with http:// or https://, as in http://127.0.0.1:8000/v1")
    return address


def _possible(address: str) -> str:
    if "\0" in address:
        raise ValueError("an address has no NUL characters")
    if re.match(r"[a-z][a-z0-9+]+:/(?!/)", address):  # else a folder of the name `s3:` would be made
        raise ValueError("an address of a store has two slashes, as in s3://bucket/openk2")
    return address


Keyless = Annotated[str, AfterValidator(keyless)]
"""Text that may name an address, and must not hold its secret."""
Address = Annotated[str, Field(min_length=1), AfterValidator(keyless), AfterValidator(_possible)]
"""A local path or an fsspec URL."""
Endpoint = Annotated[Address, AfterValidator(_web)]
"""The base URL of an OpenAI-compatible server, or several with commas between them."""


def hides(value: Any) -> bool:
    """Whether the text of `value` holds a secret."""
    return redacted(text := str(value)) != text
