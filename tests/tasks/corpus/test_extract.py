"""Extraction: formulas come out as LaTeX, code with its lines, navigation not at all, and nothing makes it crash."""

from __future__ import annotations

import contextlib
import gzip
import json
import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.corpus.archives import Unreadable
from tasks.corpus.extract import dictionary, html, man, plain, python, rst, tex
from tasks.corpus.extract.kinds import EXTRACT
from tasks.corpus.extract.passage import ExtractionError, Passage
from tasks.corpus.sources import FolderSource
from tests.linear import assert_linear
from tests.raw import read

MATHML = """<math display="block"><mrow><msup><mi>x</mi><mn>2</mn></msup><mo>≤</mo>
<mfrac><mn>1</mn><msqrt><mi>π</mi></msqrt></mfrac></mrow></math>"""


def page(body: str) -> str:
    found = html.extract(f"<html><head><title>T</title></head><body>{body}</body></html>")
    return found[0].text if found else ""


def source(**more) -> FolderSource:
    shared = {"name": "own", "kind": "folder", "path": "x", "domain": "web", "language": "en", "licence": "MIT"}
    return FolderSource(**{**shared, **more})


@pytest.mark.parametrize(
    ("markup", "expected"),
    [
        (MATHML, "$$\nx^{2}\\le \\frac{1}{\\sqrt{\\pi }}\n$$"),
        ('<p>so <math alttext="a+b"><mi>a</mi></math> holds</p>', "so $a+b$ holds"),
        (
            '<p>as <math><semantics><mi>a</mi><annotation encoding="application/x-tex">\\alpha_1</annotation>'
            "</semantics></math></p>",
            "as $\\alpha_1$",
        ),
        ('<p>with <img class="math" src="a.png" alt="\\int_0^1 f"/> here</p>', "with $\\int_0^1 f$ here"),
        ('<div class="math"><p><img src="a.png" class="math" alt="e=mc^2"/></p></div>', "e=mc^2"),
        ('<p>a</p><script type="math/tex; mode=display">\\sum_i i</script><p>b</p>', "a\n\n$$\n\\sum_i i\n$$\n\nb"),
        ('<div class="math">\\[ \\frac{a}{b} \\]</div>', "\\[ \\frac{a}{b} \\]"),
        ("<p>x<sup>2</sup> and a<sub>i</sub></p>", "x^2 and a_i"),
        ("<p>in \\(a &lt; b\\) and $$c$$ too</p>", "in \\(a < b\\) and $$c$$ too"),
        # KaTeX
        (
            '<p>so <span class="katex"><span class="katex-mathml"><math><semantics><mi>e</mi>'
            '<annotation encoding="application/x-tex">e^x</annotation></semantics></math></span>'
            '<span class="katex-html" aria-hidden="true">ex</span></span>.</p>',
            "so $e^x$.",
        ),
        # MathJax 2: preview, picture, source
        (
            '<p>so <span class="MathJax_Preview">[math]</span><span class="MathJax" id="e1">drawn</span>'
            '<script type="math/tex">\\beta</script>.</p>',
            "so $\\beta$.",
        ),
        (
            '<p>so <span class="MathJax" data-mathml="&lt;math&gt;&lt;mi&gt;γ&lt;/mi&gt;&lt;/math&gt;">d</span>.</p>',
            "so $\\gamma$.",
        ),
        # MathJax 3
        (
            '<p>so <mjx-container><mjx-math aria-hidden="true">drawn</mjx-math><mjx-assistive-mml><math><mi>x</mi>'
            "</math></mjx-assistive-mml></mjx-container>.</p>",
            "so $x$.",
        ),
        # Wikipedia: hidden MathML and a picture, or the picture alone
        (
            '<p>so <span class="mwe-math-element"><span style="display: none;"><math alttext="{\\displaystyle x^2}">'
            '<mi>x</mi></math></span><img class="mwe-math-fallback-image-inline" alt="{\\displaystyle x^2}">'
            "</span>.</p>",
            "so $x^2$.",
        ),
        ('<p>so <img class="mwe-math-fallback-image-inline" alt="{\\displaystyle x^2}">.</p>', "so $x^2$."),
        ('<p>so <img src="https://s0.wp.com/latex.php?latex=a%2Bb&bg=fff" alt="">.</p>', "so $a+b$."),
        ('<p>so <span class="math" data-latex="\\delta">δ</span>.</p>', "so $\\delta$."),
    ],
)
def test_formulas_survive_as_latex(markup, expected):
    assert expected in page(markup)


def test_code_keeps_its_lines_and_indentation():
    markup = "<pre><span class='k'>def</span> f(x):\n    <span>return</span> x &lt; 1\n\n\n# end</pre>"
    assert page(markup) == "```\ndef f(x):\n    return x < 1\n\n\n# end\n```"
    numbered = '<table><tr><td class="linenos"><pre>1\n2</pre></td><td><pre>a = 1\nb = 2</pre></td></tr></table>'
    assert page(numbered) == "```\na = 1\nb = 2\n```"


@pytest.mark.parametrize(
    "markup",
    [
        '<pre><code class="language-rust hljs">fn f() {}</code></pre>',
        '<pre class="brush: rust; gutter: false">fn f() {}</pre>',
        '<div class="highlight-rust notranslate"><div class="highlight"><pre>fn f() {}</pre></div></div>',
        '<div class="highlight highlight-source-rust"><pre>fn f() {}</pre></div>',
        '<pre class="sourceCode rust"><code>fn f() {}</code></pre>',
        '<pre data-lang="rust">fn f() {}</pre>',
    ],
)
def test_code_says_its_language_where_the_page_does(markup):
    assert page(markup) == "```rust\nfn f() {}\n```"
    assert page(markup.replace("rust", "text")) == "```\nfn f() {}\n```"


STORY = "<p>" + "The river rose in the night and the lower fields were under water by the morning. " * 12 + "</p>"


@pytest.mark.parametrize(
    "furniture",
    [
        '<div class="cookie-consent-banner"><p>We value your privacy.</p><button>Accept</button></div>',
        '<div id="share_buttons"><a href="#">Tweet</a> this</div>',
        '<section class="post-comments"><h3>3 comments</h3><p>First!</p><p>Nice post.</p></section>',
        '<ul class="breadcrumb"><li>Home</li><li>News</li></ul>',
        '<div class="newsletter-signup"><p>Get our letter.</p></div>',
        '<div class="related-posts"><h2>Read next</h2><p>Another story</p></div>',
        '<div class="main-menu"><p>Home About</p></div>',
        '<div style="display:none"><p>Loading</p></div>',
        '<div role="navigation">Home</div><aside>Advert</aside><nav>Up</nav><footer>©</footer>',
        '<header class="site"><a href="/">Logo</a> Daily News</header>',
        '<form action="/search"><label>Search</label><input><button>Go</button></form>',
    ],
)
def test_what_stands_around_the_text_of_a_web_page_goes(furniture):
    alone = page(f"<div><h1>Flood</h1>{STORY}</div>")
    assert page(f"<div>{furniture}<h1>Flood</h1>{STORY}</div>") == alone
    assert page(f"<div><h1>Flood</h1>{STORY}{furniture}</div>") == alone


@pytest.mark.parametrize(
    "markup",
    [
        f'<div class="page with-sidebar no-comments"><h1>T</h1>{STORY}</div>',
        f'<div class="menu">{STORY}</div>',
        '<div class="code-toolbar social"><pre>x = 1</pre></div>' + STORY,
        '<div class="menu"><math><mi>x</mi></math></div>' + STORY,
        f"<header><h1>Title</h1></header>{STORY}",
        f'<form id="aspnetForm">{STORY}</form>',
    ],
)
def test_a_name_that_its_content_belies_is_not_believed(markup):
    bare = re.sub(r' class="[^"]*"', "", markup)
    assert page(markup) == page(bare)


@pytest.mark.parametrize(
    ("before", "unit", "size"),
    [
        ("", '<div class="menu">', 2_400),  # whatever is deeper than 10,000 elements is refused
        ("", "<header>", 2_400),
        ("", '<b style="display:none">', 2_400),
        ("", "<math>", 2_400),
        ("<p>", '<span class="katex-html">x</span>', 8_000),
        ("<p>", '<img class="math" alt="x">', 8_000),
        ("<pre>", "<code>x</code>", 8_000),
        ("<p>", '<span class="MathJax">x</span>', 8_000),
        ("<ul>", "<li><a href=x>y</a>", 8_000),
        ("<table>", "<tr><td>", 8_000),
        ("<p>$$", "\\[ ", 25_000),
        ('<div class="', "menu-", 50_000),
        ("<p ", "a ", 25_000),
        ("", "<", 250_000),
        ("", "<a", 250_000),
        ("", '<a b="', 250_000),
        ("", "<!--", 50_000),
        ("", "<script>", 50_000),
        ("<b>" * 2_000, "</i>x", 10_000),
    ],
)
def test_hostile_pages_take_linear_time(before, unit, size):
    def work(times: int) -> None:
        with contextlib.suppress(ExtractionError):
            html.extract(before + unit * times + "<h1>x</h1><mi>x")

    assert_linear(work, size)


def test_structure_becomes_markdown_and_navigation_is_dropped():
    markup = """<nav>Home</nav><header><a>Logo</a></header><div class="sphinxsidebar">Side</div>
    <h1>Title<a class="headerlink" href="#t">¶</a></h1><p>One <b>two</b>\nthree <code>f(x)</code>.</p>
    <ul><li>first</li><li>second<ul><li>inner</li></ul></li></ul>
    <table><tr><th>a</th><th>b</th></tr><tr><td>1</td><td><p>2</p></td></tr></table>
    <dl><dt>term</dt><dd>meaning</dd></dl><footer>© 2020</footer><script>x()</script>"""
    assert page(markup) == (
        "# Title\n\nOne two three `f(x)`.\n\n- first\n- second\n- inner\n\na | b\n1 | 2\n\nterm\n\nmeaning"
    )


def test_a_dropped_link_does_not_make_what_follows_a_menu():
    entries = "".join(f'<dl><dt>f{n}()<a class="headerlink">¶</a></dt><dd>Does {n}.</dd></dl>' for n in range(9))
    assert page(entries).count("Does") == 9
    menu = "<ul>" + "".join(f"<li><a href='{n}'>Chapter {n}</a></li>" for n in range(9)) + "</ul>"
    assert page(menu + "<p>Text.</p>") == "Text."


def test_only_the_main_content_is_taken_and_chinese_lines_join_without_spaces():
    assert page("<div>Side</div><div role='main'><p>Main</p></div>") == "Main"
    assert page("<p>这是第一行\n这是第二行</p>") == "这是第一行这是第二行"


@pytest.mark.parametrize(
    "markup", ["", "   ", "<html></html>", "\0\0", "<p>a\0b</p>", "<div>" * 5000 + "deep", "<" * 99]
)
def test_odd_pages_do_not_crash(markup):
    found = html.extract(markup)
    assert all(passage.text for passage in found)


@given(st.text(alphabet=st.sampled_from("<>/pdivtablermhs =\"'&;x\n$"), max_size=300))
@settings(max_examples=150, deadline=None)
def test_no_markup_crashes_the_walk(markup):
    html.extract(markup)


def test_rst():
    text = """Title
=====

See :func:`~os.path.join` and ``code`` with :math:`a^2`.

.. toctree::
   other

.. math:: e^{i\\pi} = -1

.. code-block:: python
   :linenos:

   def f():
       return 1

Example::

   $ ls
   a  b

.. note:: Mind this.

.. function:: split(x)

   Splits :class:`X`.

>>> 1 + 1
2
"""
    body = rst.extract(text)[0].text
    assert body.startswith("# Title\n\nSee `join` and `code` with $a^2$.")
    assert "$$\ne^{i\\pi} = -1\n$$" in body
    assert "```\ndef f():\n    return 1\n```" in body
    assert "Example:\n\n```\n$ ls\na  b\n```" in body
    assert "Mind this." in body
    assert "`split(x)`\n\nSplits `X`." in body
    assert "```\n>>> 1 + 1\n2\n```" in body
    assert "toctree" not in body
    assert "other" not in body


@given(st.text(alphabet=st.sampled_from(":.`=-*_| \nabmath>"), max_size=200))
@settings(max_examples=150, deadline=None)
def test_no_rst_crashes(text):
    rst.render(text)


def test_tex_keeps_formulas_and_verbatim_and_drops_commands():
    text = r"""% a comment
\documentclass{article}
\begin{document}
\section{Roots of {\it f}}\label{a}
We have $x_1 = \frac{a}{b}$ % not this
and \emph{note} that \textbf{all} 50\% hold:
\begin{equation} x = \sqrt{2} \end{equation}
\begin{verbatim}
% kept \emph{as is}
\end{verbatim}
\end{document}"""
    body = tex.extract(text)[0].text
    assert body.startswith("## Roots of f")
    assert r"$x_1 = \frac{a}{b}$" in body
    assert r"\begin{equation} x = \sqrt{2} \end{equation}" in body
    assert "```\n% kept \\emph{as is}\n```" in body
    assert "note that all 50% hold" in body
    assert "not this" not in body
    assert "documentclass" not in body


@pytest.mark.parametrize(
    ("text", "body"),
    [
        (r"It costs \$5. Let $\alpha + 1$ be \emph{given}.", r"It costs $5. Let $\alpha + 1$ be given."),
        (r"Over $a = \$5$ and \\$x^2$.", "Over $a = \\$5$ and\n$x^2$."),
        (r"a \\[2pt] \emph{b} and \[ x \] end", "a\n b and \\[ x \\] end"),
        (r"a & b \\ \hline c", "a & b\n c"),
        ("a \\\\% gone\nb 5\\% kept", "a\nb 5% kept"),
    ],
)
def test_tex_knows_what_is_escaped_from_a_line_break(text, body):
    assert tex.extract(text)[0].text == body


def test_plain_tex_that_speaks_of_latex_is_not_cut():
    assert tex.extract(r"Before. Write \begin{document} there. After.")[0].text.startswith("Before.")
    assert tex.extract("\n" * 5000 + "x")[0].text == "x"


def test_man_pages_are_filled_and_their_fonts_dropped():
    text = r""".\" comment
.TH LS 1 2022 "GNU"
.SH 名称
ls \- 列出目录
内容
.PP
.BR ls (1)
is
.I here
.TP
\fB\-a\fP, \fB\-\-all\fP
不要忽略
.nf
  $ ls  -l
  a
.fi
"""
    (passage,) = man.extract(text)
    assert passage.title == "LS(1)"
    assert passage.text == (
        "# LS(1)\n\n## 名称\n\nls - 列出目录内容\n\nls(1) is here\n\n- -a, --all\n\n不要忽略\n\n"
        "```\n  $ ls  -l\n  a\n```"
    )


def test_dictionary_entries_gather_to_passages():
    text = (
        "00-database-info\n\n   Info\n\nalpha\n\n   First {letter} of\n   Greek.\n\nbeta\n\n   " + "Long. " * 120 + "\n"
    )
    assert dictionary.entries("a\n\n   x {y\n   z}\n") == [("a", "x y\nz")]
    broken = "   a sentence that was broken to fit into the width of\n   a terminal, and its end.\n   - an item\n"
    assert dictionary.entries(f"a\n{broken}")[0][1] == (
        "a sentence that was broken to fit into the width of a terminal, and its end.\n- an item"
    )
    passages = dictionary.extract(text)
    assert [passage.title for passage in passages] == ["alpha"]
    assert passages[0].text.startswith("# alpha\n\nFirst letter of\nGreek.\n\n# beta")


def test_docstrings_are_prose_and_programs_stay_programs():
    text = '''"""Module about things that matter."""

def f(x):
    """Return :math:`x^2` of the number.

    :param x: the number
    :type x: int
    """
    return x * x
'''
    assert python.program(text)[0] == Passage(text.strip("\n"), code=True)
    assert python.docstrings(text)[0].text == (
        "Module about things that matter.\n\n## f\n\nReturn $x^2$ of the number.\n\n- `x`: the number"
    )
    with pytest.raises(ExtractionError, match="not Python"):
        python.docstrings("def f(:\n")
    asked = python.docstrings('async def f():\n    """Half a character, \\ud800, in a docstring."""\n')
    assert asked[0].text == "## f\n\nHalf a character, \ufffd, in a docstring."


def test_markdown_front_matter_goes():
    for fields in ("a: 1", "# who\n\n  'a b': 1\nc: |\n  text", "tags:\n- a"):
        assert plain.markdown(f"---\n{fields}\n---\n# T\n\nBody") == [Passage("# T\n\nBody", "T")]


def test_a_rule_at_the_beginning_of_markdown_is_no_front_matter():
    text = "---\n\nA paragraph between two rules.\n\n---\n\nBody"
    assert plain.markdown(text) == [Passage(text)]


def test_what_follows_the_end_of_a_latex_document_is_none_of_it():
    text = (
        "\\documentclass{a}\n\\begin{document}\nOne.\n\\begin{verbatim}\n\\end{document}\n\\end{verbatim}\n"
        "Say \\verb|\\end{document}| last.\n% \\end{document}\nTwo.\n \\end{document}\nOld notes."
    )
    (one,) = tex.extract(text)
    assert "Two." in one.text
    assert "Old notes" not in one.text


def test_records_of_jsonl_and_parquet_one_bad_line_does_not_hide_the_rest(tmp_path):
    lines = [json.dumps({"body": "one", "l": "MIT"}), "{broken", json.dumps({"other": 1}), json.dumps({"body": "two"})]
    own = source(text_field="body", licence_field="l")
    found = read("a.jsonl.gz", gzip.compress("\n".join(lines).encode()), own, 10_000)
    assert [type(one).__name__ for one in found] == ["Passage", "Unreadable", "Unreadable", "Passage"]
    assert (found[0].text, found[0].licence, found[3].licence) == ("one", "MIT", "")
    assert found[1].path == "a.jsonl.gz#2"
    pq.write_table(pa.table({"body": ["one", None, "two"], "n": [1, 2, 3]}), tmp_path / "a.parquet")
    data = (tmp_path / "a.parquet").read_bytes()
    (unlicensed,) = read("a.parquet", data, own, 10_000)  # its rows would be under the source's licence
    assert "no column 'l' among body, n" in unlicensed.reason
    own = source(text_field="body")
    assert [one.text for one in read("a.parquet", data, own, 10_000)] == ["one", "", "two"]
    (missing,) = read("a.parquet", data, source(), 10_000)
    assert "no column 'text' among body, n" in missing.reason
    (cut,) = read("a.parquet", data[:-10], own, 10_000)
    assert isinstance(cut, Unreadable)


@pytest.mark.parametrize(
    ("path", "data", "reason"),
    [
        ("a.html.gz", gzip.compress(b"<p>x</p>", mtime=0)[:-4], "end early"),
        ("a.txt", bytes(range(256)) * 10, "binary"),
        ("a.png", b"\x89PNG", "no reader for .png"),
        ("a.txt.gz", gzip.compress(b"x" * 100_000, mtime=0), "larger than"),
    ],
)
def test_a_file_that_cannot_be_read_says_why(path, data, reason):
    (found,) = read(path, data, source(), 10_000)
    assert isinstance(found, Unreadable)
    assert found.path == path
    assert reason in found.reason


ENDLESS = [
    "\\begin{verbatim}\n", "\\begin{verbatim}[", "\\bprog ", "\\[ ", "\\( ", "\\begin{equation}", "$ ", "$$", "{",
    "\\section{", "\\emph{", "{\\it ", "\\documentclass\n", "%\n", "\\label[", "\\label{", "\\fun{a}", " ", "\n", "\t",
    " \n", "\\f[", ".BR \"", "\\*[", "`a <", "*a", "..\n", "::\n\n  a\n", "=\n", "{a\n", "---\n", "# ", ":a:",
    "=== ===\n", "charset=", "<", "&",
]  # fmt: skip


@pytest.mark.parametrize("reader", sorted(EXTRACT))
def test_no_endless_text_takes_more_than_linear_time(reader):
    for piece in ENDLESS:

        def work(size: int, piece: str = piece) -> None:
            with contextlib.suppress(ExtractionError):
                EXTRACT[reader]((piece * size)[:size])

        assert_linear(work, 50_000)


@pytest.mark.parametrize(
    ("reader", "opening", "piece"),
    [
        ("rst", "`a", " "),
        ("rst", "`a` ", ":math"),
        ("rst", ".. note::\n", "\n"),
        ("tex", "{\\it", "\n"),
        ("markdown", "---\n", "#:\n"),
        ("markdown", "+++\n", "#=\n"),
    ],
)
def test_what_is_opened_and_never_closed_takes_linear_time(reader, opening, piece):
    assert_linear(lambda size: EXTRACT[reader](f"{opening}{(piece * size)[:size]}x"), 20_000)


def test_a_rule_above_a_heading_with_a_colon_is_no_front_matter():
    page = "---\n# On rules: a page\n\nText.\n\n---\n\nMore."
    assert plain.markdown(page)[0].text == page
    assert plain.markdown("---\n# a comment: here\ntitle: x\n---\nBody")[0].text == "Body"


def test_markup_within_an_attribute_is_held_to_the_limits_of_a_page():
    page = f'<p>x<span data-mathml="&lt;p {" ".join(f"a{n}=1" for n in range(1_100))}&gt;"></span></p>'
    with pytest.raises(ExtractionError, match="over 1,000 attributes"):
        html.extract(page)


def test_latex_as_papers_write_it():
    paper = r"""\documentclass{article}
\begin{document}
\"uber na\"{\i}ve Erd\H{o}s, \c{C}a, {\O}re: \citet{a} and \citep[p.~3][]{b} by~\eqref{e}.
\begin{theorem}[Main] It \href{http://a.b/c}{holds}. \end{theorem}
\includegraphics[width=3cm]{f.png}\textcolor{red}{Red}.
\begin{tabular}{l|c}
one & two \\
\end{tabular}
\end{document}"""
    text = " ".join(tex.extract(paper)[0].text.split())
    assert text == "über naïve Erdős, Ça, Øre: and by . It holds. Red. one & two"


@pytest.mark.parametrize("head", ["+++\ntitle = 'x'\n+++\n", "---  \ntitle: x\n--- \n"])
def test_front_matter_of_every_site_generator_is_no_text(head):
    assert plain.markdown(head + "Body")[0].text == "Body"
    assert plain.markdown(head.rstrip()) == []
