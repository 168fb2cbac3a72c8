"""The page at `/`: what it may load, and a chat in a browser by keyboard alone."""

from __future__ import annotations

import json
import re
import shutil

import pytest

from tests.model.serve.browser import browser
from tests.model.serve.conftest import KEY
from tests.model.serve.test_api import TOOLS


def test_it_is_one_file_that_loads_nothing_from_elsewhere(client):
    answer = client.get("/", headers={"Authorization": ""})
    assert answer.status_code == 200
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert not re.findall(r"""(?:src|href)\s*=\s*["'](?!data:)|@import|url\(|innerHTML|insertAdjacent""", answer.text)
    assert KEY not in answer.text


@pytest.mark.skipif(shutil.which("chromium") is None, reason="no chromium")
def test_a_chat_by_keyboard(running, client, tmp_path):
    """Key in the fragment, a message, its answer, a call and its result, the next answer; anew; a wrong key."""
    key = KEY.replace(" ", "%20")
    with browser(shutil.which("chromium"), f"{running.url}/#{key}", tmp_path / "profile") as page:
        page.wait("document.activeElement.id === 'say'")
        assert page.value("document.title") == "tiny: chat"
        assert page.value("location.href") == f"{running.url}/"
        page.value(f"$('budget').value = 30, $('seed').value = 1, $('tools').value = {json.dumps(json.dumps(TOOLS))}")
        page.type("<img src=x onerror=alert(1)> \u202e")
        page.enter()
        page.wait("/tokens in/.test($('state').textContent)")
        assert page.value("document.querySelectorAll('article').length") == 2
        assert page.value("document.querySelector('.user .text').textContent").startswith("<img src=x")
        assert page.value("messages[1].content.length") > 0
        page.value("$('choice').value = 'required', $('budget').value = ''")
        page.type("call")
        page.enter()
        page.wait("document.activeElement.closest('.call') !== null")
        made = page.value("waiting.size")
        assert made == page.value("messages.at(-1).tool_calls.length") >= 1
        page.value("$('choice').value = 'none', $('budget').value = 10")
        for _ in range(made):
            page.type("the result")
            page.enter()
        page.wait("messages.at(-1).role === 'assistant' && !under")
        roles = page.value("messages.map(one => one.role)")
        assert roles == ["user", "assistant", "user", "assistant", *["tool"] * made, "assistant"]
        assert not page.said
        page.press("n", 78, modifiers=1)
        assert page.value("messages.length + document.querySelectorAll('article').length") == 0
        page.value("store.set('wrong'), begin()")
        page.wait("document.activeElement.id === 'key'")
        assert "not the key" in page.value("$('state').textContent")
        page.type(KEY)
        page.enter()
        page.wait("document.activeElement.id === 'say'")
