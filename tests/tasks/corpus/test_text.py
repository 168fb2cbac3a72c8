"""What happens to a text on its way: decoding, repair, language, licence, cutting."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.corpus.encoding import NotTextError, decode
from tasks.corpus.language import identify
from tasks.corpus.licence import allowed
from tasks.corpus.quality.blocks import blocks, outside
from tasks.corpus.repair import repair
from tasks.corpus.split import split
from tests.linear import assert_linear

ENGLISH = "The directory is listed in the order in which its entries were made, and every name is shown once. "
CHINESE = "本手册说明如何安装和配置系统，并介绍常用的命令以及它们的选项。请先阅读安装说明，然后按照步骤操作。"
GERMAN = "Die Verzeichnisse werden in der Reihenfolge angezeigt, in der ihre Einträge angelegt worden sind. " * 2


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "gb18030", "big5"])
def test_bytes_are_read_as_what_they_are(encoding):
    text = "漢字與文字編碼的測試內容在這裡" * 20 if encoding == "big5" else CHINESE * 5
    marked = f"<meta charset={encoding}>{text}" if encoding in ("gb18030", "big5") else text
    assert decode(marked.encode(encoding)) == marked


def test_a_wrong_declaration_and_a_few_wrong_bytes_do_not_matter():
    assert decode("<meta charset=latin-1>中文".encode()) == "<meta charset=latin-1>中文"
    damaged = (CHINESE * 50).encode() + b"\xff" + CHINESE.encode()
    assert decode(damaged) == CHINESE * 50 + "\ufffd" + CHINESE
    assert decode(b"caf\xe9, na\xefve and a few more words") == "café, naïve and a few more words"
    # one accent in a long page of ASCII is a letter where another encoding is declared, and damage where none is
    for declared, letter in (("iso-8859-1", "é"), ("utf-8", "\ufffd")):
        page = f"<meta charset={declared}>" + "some words " * 400
        assert decode(page.encode() + b"caf\xe9") == f"{page}caf{letter}"
    assert decode(b"some words " * 400 + b"caf\xe9").endswith("caf\ufffd")
    with pytest.raises(NotTextError):
        decode(b"\x7fELF" + bytes(1000))


@pytest.mark.parametrize(
    ("declared", "encoding", "text"),
    [
        ("iso-8859-1", "cp1252", "He didn’t say “no” – the café’s owner… "),
        ("latin-1", "cp1252", "He didn’t say “no” – the café’s owner… "),
        ("shift_jis", "cp932", "これは①と髙橋のテストです。"),
        ("x-sjis", "cp932", "これは①と髙橋のテストです。"),
        ("euc-kr", "cp949", "똠방각하와 펲시콜라를 시험합니다. "),
        ("gb2312", "gb18030", "镕基与喆，這是測試頁面。"),
        ("iso-8859-9", "cp1254", "İstanbul’da “güzel” bir gün. "),
    ],
)
def test_a_declared_encoding_is_what_the_web_means_by_it(declared, encoding, text):
    page = f"<meta charset={declared}>" + text * 30
    assert decode(page.encode(encoding)) == page
    # one byte that is wrong in it costs a character, not the page
    damaged = decode(page.encode(encoding) + b"\xff\n" + text.encode(encoding))
    assert damaged.startswith(page[:-2])
    assert damaged.endswith(text[3:])


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252"])
def test_mojibake_is_mended_though_half_of_its_bytes_are_controls(encoding):
    for text in ("It’s “quoted” — isn’t it?", "aquí, Álvarez", "中文，漢字"):
        wrong = text.encode().decode(encoding) if encoding == "latin-1" else _windows(text.encode())
        assert repair(wrong, False) == text
    assert repair("soft\u00adhyphen x\x85y", False) == "softhyphen xy"


def _windows(data: bytes) -> str:
    """As browsers read it: the five bytes that Windows-1252 leaves free are controls."""
    return "".join(bytes([one]).decode("cp1252", "ignore") or chr(one) for one in data)


def test_repair_mends_mojibake_and_keeps_what_is_right():
    assert repair("It\u00e2\u20ac\u2122s caf\u00c3\u00a9", False) == "It\u2019s café"
    assert repair("全角，“引号”：ＡＢＣ", False) == "全角，“引号”：ＡＢＣ"
    assert repair("e\u0301\0x\u200b\r\ny\x07", False) == "éx\ny"
    assert repair("a\n  Next page »\nThe next page\nCreated using Sphinx 5.\nb", False) == "a\nThe next page\nb"
    fence = "```yaml\nindex:\n  next\n```"
    assert repair(f"a\n\n{fence}\n\nNext\nb", False) == f"a\n\n{fence}\n\nb"
    assert repair("x = 'We use cookies'  \n\n\n\n\ny\0", True) == "x = 'We use cookies'\n\n\ny"


@given(st.text(max_size=200), st.booleans())
def test_repair_settles(text, code):
    once = repair(text, code)
    assert "\0" not in once
    assert repair(once, code) == once


@pytest.mark.parametrize(
    ("text", "declared", "language"),
    [
        (ENGLISH, "en", "en"),
        (ENGLISH, "zh", "en"),
        (CHINESE, "en", "zh"),
        (CHINESE + " ls --all --color=auto", "zh", "zh"),
        (ENGLISH * 20 + "¯\\_(ツ)_/¯", "en", "en"),
        ("この関数はファイルを開き、 open() と read() の値を返します。 Python と C で使えます。" * 3, "en", "ja"),
        ("安裝手冊說明了如何設定系統與常用的指令，並且介紹它們的選項。", "zh", "zh"),
        (GERMAN, "en", "de"),
        ("これは日本語の文書です。設定の方法を説明します。インストールしてください。", "zh", "ja"),
        ("이 문서는 한국어로 작성되었으며 설치 방법을 설명합니다. 먼저 읽어 보십시오.", "en", "ko"),
        ("```\nls -l /usr\n```", "zh", "zh"),
        ("x = 1", "en", "en"),
    ],
)
def test_language(text, declared, language):
    assert identify(text, declared) == language


def test_a_close_second_stands_only_where_it_reads_like_english():
    danish = "Programmet viser filernes navne og deres størrelse i den valgte mappe, og det stopper når listen er tom."
    assert identify(danish, "en") != "en"
    assert identify(f"{ENGLISH} ls cp mv rm", "en") == "en"


@pytest.mark.parametrize(
    "text", ["```x\n" * 40_000, "$$" * 100_000, "`" * 200_000, "http://" * 28_000, "的a" * 100_000]
)
def test_language_takes_linear_time_on_a_hostile_text(text):
    identify(text[:1000], "en")
    assert_linear(lambda size: identify(text[:size], "en"), len(text) // 4)


@pytest.mark.parametrize(
    "text",
    [
        "Ã©" * 100_000,
        "#- " * 66_000,
        "\n" * 200_000,
        "previous " * 20_000,
        "a" + "\u0301" * 100_000,
        "\x1b[" * 100_000,
    ],
)
def test_repair_takes_linear_time_on_a_hostile_text(text):
    assert_linear(lambda size: repair(text[:size], False), len(text) // 4)


@pytest.mark.parametrize(
    ("licence", "passes"),
    [
        ("MIT", True),
        ("GPL-2.0-or-later", True),
        ("Proprietary OR MIT", True),
        ("(MIT OR Proprietary)", True),
        ("MIT AND Proprietary", False),
        ("GPL-3.0-only WITH Classpath-exception-2.0", True),
        ("Proprietary", False),
        ("", False),
    ],
)
def test_licences(licence, passes):
    assert allowed(licence, ("MIT", "GPL-*")) is passes


def test_prose_is_cut_before_headings_and_small_sections_stay_together():
    text = "\n\n".join(f"## Section {number}\n\n{'word ' * 60}" for number in range(10))
    pieces = split(text, 1000)
    assert all(piece.startswith("## Section") for piece in pieces)
    assert [piece.count("##") for piece in pieces] == [3, 3, 3, 1]


def test_a_comment_in_a_fence_is_no_heading_and_code_is_cut_at_definitions():
    text = "intro\n\n```\n" + "# comment\nx = 1\n" * 40 + "```\n\n## Next\n\n" + "word " * 20
    assert split(text, 700)[-1].startswith("## Next")
    code = "".join(f"@wraps\ndef f{number}():\n{'    x = 1' + chr(10)}" * 1 for number in range(60))
    pieces = split(code, 500, code=True)
    assert all(piece.startswith("@wraps\ndef") for piece in pieces)


@given(
    st.lists(
        st.sampled_from(["# h\n", "word ", "\n\n", "```\n", "中文。", "x" * 300, "def f():\n", "\n"]), max_size=80
    ),
    st.booleans(),
)
def test_cutting_loses_nothing_but_white_space_and_respects_the_limit(parts, code):
    text = "".join(parts)
    pieces = split(text, 250, code)
    assert all(0 < len(piece) <= 250 for piece in pieces)
    whole = lambda said: "".join(said.replace("```", "").split())  # noqa: E731  (a fence is closed and opened again)
    assert whole("".join(pieces)) == whole(text)


def test_a_fence_stays_whole_or_is_closed_and_opened_again():
    program = "".join(f"def handler_{number}(request):\n    return {{'a': request}}\n\n" for number in range(40))
    fence = f"```python\n{program}```"
    before, after = split(f"# Guide\n\n{ENGLISH * 25}\n\n{fence}\n\n{ENGLISH * 9}", 4000)
    assert before.endswith("once. ")
    assert fence in after
    pieces = split(f"# Guide\n\n{fence}\n\n{ENGLISH * 5}", 1000)
    assert len(pieces) == 3
    assert all(piece.count("```python\ndef ") == 1 for piece in pieces)
    assert [outside(piece).strip()[:20] for piece in pieces] == ["# Guide", "", ENGLISH[:20]]


@pytest.mark.parametrize("fence", ["~~~\nnext\n~~~", "   ```sh\n   next\n   ```", "\t```\nnext\n```"])
def test_a_fence_may_be_indented_and_of_tildes(fence):
    text = f"1. a\n\n{fence}\n\nb"
    (span,) = blocks(text)
    assert text[slice(*span)] == fence
    assert repair(text, False) == text


def test_underlines_are_no_fences():
    assert not list(blocks("One\n~~~~~\n\ntext\n\nTwo\n~~~~~\n"))


def test_fences_that_never_close_are_cut_in_linear_time():
    text = "```a\n" * 200_000  # looked through to its end from each of them, this would take hours
    assert "\n".join(split(text, 12_000)) == text.strip("\n")
