"""Block lists: every spelling of an address, lists of any length in bounded memory, one look-up a question."""

from __future__ import annotations

import gzip
import lzma
import random
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tasks.artifact import Step
from tasks.corpus import blocklists
from tasks.corpus.safety.blocklist import Blocklist, address, compile_list, domain
from tasks.corpus.safety.config import BlockConfig
from tasks.corpus.sources import BlocklistSource, SourcesConfig
from tasks.corpus.unavailable import UnavailableError


def blocked(url: str, **config):
    return Blocklist(BlockConfig(**config)).blocked("source:path", url)


@pytest.mark.parametrize(
    "url",
    [
        "http://bad.com/", "HTTP://WWW.BAD.COM:8080/x", "https://user:secret@a.b.bad.com./", "//bad.com/x",
        "bad.com?x=1",
        "http:\\\\bad.com\\y", "bad。com", "http://ｂａｄ.com/", "http://b%61d.com/", "ht\ntp://bad.com", "bad.com#top",
        " http://bad.com:443 ",
    ],
)  # fmt: skip
def test_a_domain_is_blocked_in_every_spelling_with_its_subdomains(url):
    assert blocked(url, domains=["Bad.com"]) == ("blocked_domain", "bad.com")


@pytest.mark.parametrize(
    "url", ["http://notbad.com", "http://bad.com.org/", "http://x.org/bad.com", "", "bad.co", "://"]
)
def test_other_domains_pass(url):
    assert blocked(url, domains=["bad.com"]) is None


@pytest.mark.parametrize("entry", ["https://bad.com/", "*.bad.com", ".bad.com", "http://user@bad.com:80"])
def test_a_domain_is_named_in_every_spelling(entry, tmp_path):
    assert blocked("http://www.bad.com/x", domains=[entry]) == ("blocked_domain", "bad.com")
    compile_list([("domains", "spam", entry)], tmp_path / "list")
    found = Blocklist(BlockConfig(), [tmp_path / "list"]).blocked("source:path", "http://www.bad.com/x")
    assert found == ("blocked_domain", "bad.com (spam)")


@pytest.mark.parametrize("entry", [".", "https://", "*.", "//", "#"])
@pytest.mark.parametrize("kind", ["domains", "urls"])
def test_an_entry_without_a_name_blocks_nothing(entry, kind, tmp_path):
    compile_list([(kind, "spam", entry)], tmp_path / "list")
    for found in (Blocklist(BlockConfig(**{kind: [entry]})), Blocklist(BlockConfig(), [tmp_path / "list"])):
        assert found.blocked("source:folder/path", "http://ok.com/x") is None


def test_international_names_are_one_with_their_ascii_form():
    for entry, url in (
        ("straße.de", "http://xn--strae-oqa.de/"),
        ("xn--fiq228c.cn", "https://中文.cn/页"),
        ("МОСКВА.рф", "москва.рф"),
    ):
        assert blocked(url, domains=[entry])[0] == "blocked_domain"


@pytest.mark.parametrize(
    ("url", "config", "value"),
    [
        ("https://www.ok.org/x/y?q=1", {"urls": ["ok.org/x/"]}, "ok.org/x"),
        ("http://ok.org/X/%79", {"urls": ["http://ok.org/x/y"]}, "ok.org/x/y"),
        ("http://ok.org//x", {"urls": ["ok.org/x"]}, "ok.org/x"),
        ("http://ok.org/p?id=3", {"urls": ["ok.org/p?id=3"]}, "ok.org/p?id=3"),
        ("http://ok.org/a.zip", {"urls": ["*.zip"]}, "*.zip"),
        ("https://ok.org/a", {"urls": ["http://OK.org/*"]}, "http://OK.org/*"),
        ("https://ok.org/a", {"urls": ["*://ok.org/?"]}, "*://ok.org/?"),
        ("https://ok.org", {"urls": ["https://ok.org/*"]}, "https://ok.org/*"),
        ("https://www.ok.org/", {"urls": ["*.ok.org/*"]}, "*.ok.org/*"),
        ("https://ok.zip/", {"urls": ["*.zip"]}, "*.zip"),
        ("https://ok.org/a", {"urls": ["https://ok.org/"]}, "ok.org/"),
        ("https://ok.org", {"urls": ["ok.org"]}, "ok.org/"),
        ("http://ok.org/best-casino", {"words": ["Casino"]}, "the word 'casino'"),
        ("http://thebestcasino.org/", {"subwords": ["casino"]}, "holds 'casino'"),
        ("http://ok.org/free/poker", {"soft_words": ["free", "poker"]}, "the words free, poker"),
    ],
)
def test_beginnings_patterns_and_words(url, config, value):
    assert blocked(url, **config) == ("blocked_url", value)


def test_what_only_looks_alike_passes():
    assert blocked("http://ok.org/xy", urls=["ok.org/x"]) is None
    assert blocked("http://ok.org/", urls=["ok.org/?*"]) is None
    assert blocked("http://ok.org/casinos", words=["casino"]) is None
    assert blocked("http://ok.org/free/free", soft_words=["free", "poker"]) is None


def test_a_mirror_is_judged_by_the_hosts_in_its_paths():
    own = Blocklist(BlockConfig(domains=["bad.com"], urls=["ok.org/x"], words=["casino"]))
    assert own.blocked("mirror:sites/www.bad.com/index.html") == ("blocked_domain", "bad.com")
    assert own.blocked("mirror:ok.org/x/page.html#part")[0] == "blocked_url"
    assert own.blocked("mirror:a/casino/b.html")[0] == "blocked_url"
    assert own.blocked("mirror:docs/bad.com") is None  # a file of that name is no host
    assert Blocklist(BlockConfig(domains=["bad.com"], paths=False)).blocked("mirror:bad.com/x") is None


def test_an_empty_entry_would_block_everything_and_is_refused():
    with pytest.raises(ValidationError, match="would block everything"):
        BlockConfig(urls=["ok.org", " "])


@given(st.text(max_size=80), st.text(max_size=80))
def test_no_address_is_too_odd(url, path):
    place = address(url)
    assert address(place.host).host == domain(place.host) or not place.host.isascii()
    Blocklist(BlockConfig(domains=["bad.com"], words=["x"], urls=["a*b*c"])).blocked(f"s:{path}", url)


def test_a_long_hostile_address_costs_little():
    own = Blocklist(BlockConfig(domains=["bad.com"], urls=["*a*a*a*a*b", "ok.org/x"], words=["x"]))
    for url in ("a." * 500_000, "http://ok.org/" + "a/" * 500_000, "http://a" * 100_000, "%61" * 300_000):
        assert own.blocked("s:p", url) is None


def write_ut1(root):
    (root / "gambling").mkdir(parents=True)
    (root / "adult").mkdir()
    (root / "gambling" / "domains").write_text(
        "# comment\n\ncasino.test\nWWW.Bets.Test\n0.0.0.0 hosts.test\n||ads.test^\n"
    )
    (root / "gambling" / "urls").write_text("free.test/~casino/\n")
    (root / "adult" / "domains").write_text("adult.test\n" + "x" * 5000 + "\n")
    (root / "words").write_text("poker\n")


def acquired(root, folder, **more):
    source = {"name": "own", "kind": "folder", "path": "x", "domain": "web", "language": "en", "licence": "MIT"}
    lists = [{"name": "ut1", "path": str(folder), **more}]
    step = Step("sources", SourcesConfig(sources=[source], blocklists=lists), str(root), leaf=True)
    statistics = blocklists.acquire(step, step.config.blocklists)
    return statistics, [step.path(part) for part in step.recorded("blocklists")]


def test_folders_of_categories_are_compiled_and_the_category_is_named(tmp_path):
    write_ut1(tmp_path / "lists")
    statistics, paths = acquired(tmp_path / "data", tmp_path / "lists")
    assert statistics == {"blocklists": {"ut1": {"domains": 5, "urls": 1, "words": 1}}}
    own = Blocklist(BlockConfig(), paths)
    assert own.blocked("s:p", "http://x.casino.test/") == ("blocked_domain", "casino.test (gambling)")
    assert own.blocked("s:p", "http://bets.test/") is None  # listed as www.bets.test
    assert own.blocked("s:p", "http://hosts.test/")[1] == "hosts.test (gambling)"
    assert own.blocked("s:p", "http://ads.test/")[1] == "ads.test (gambling)"
    assert own.blocked("s:p", "http://www.free.test/~casino/a")[1] == "free.test/~casino (gambling)"
    assert own.blocked("s:p", "http://adult.test/")[1] == "adult.test (adult)"
    assert own.blocked("s:p", "http://ok.test/poker")[0] == "blocked_url"
    assert own.blocked("s:p", "http://ok.test/") is None
    _, paths = acquired(tmp_path / "some", tmp_path / "lists", categories=["adult"])
    assert Blocklist(BlockConfig(), paths).blocked("s:p", "http://casino.test/") is None


def test_other_entries_are_another_identity_and_the_same_ones_the_same_bytes(tmp_path):
    write_ut1(tmp_path / "lists")
    first, second = (acquired(tmp_path / name, tmp_path / "lists")[1][0].read_bytes() for name in ("a", "b"))
    assert first == second
    (tmp_path / "lists" / "words").write_text("poker\nslots\n")
    assert acquired(tmp_path / "c", tmp_path / "lists")[1][0].read_bytes() != first


def test_a_list_that_is_not_there_is_one_sentence(tmp_path):
    with pytest.raises(UnavailableError, match="block list 'ut1': nothing lies at"):
        acquired(tmp_path / "data", tmp_path / "nothing")


def test_a_list_that_is_cut_or_damaged_is_one_sentence(tmp_path):
    damaged = bytearray(lzma.compress(random.Random(0).randbytes(5000).hex().encode()))
    damaged[100:300] = bytes(200)
    cut = gzip.compress(b"bad.test\n" * 5000)[:-20]
    for name, data in (("domains.gz", cut), ("domains.xz", damaged)):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(UnavailableError, match=rf"block list 'ut1': .*{name} could not be read"):
            acquired(tmp_path / "data", tmp_path / name)


def test_many_entries_take_bounded_memory_and_a_look_up_does_not_grow(tmp_path):
    count = 200_000
    made = (("domains", "many", f"host{number}.test") for number in range(count))
    path = tmp_path / "many.list"
    assert compile_list(made, path)["domains"] == count
    assert path.stat().st_size < 14 * count
    tracemalloc.start()
    own = Blocklist(BlockConfig(), [path])
    pick = random.Random(1)
    for number in pick.sample(range(count), 500):
        assert own.blocked("s:p", f"http://a.host{number}.test/x") is not None
        assert own.blocked("s:p", f"http://host{number}x.test/x") is None
    assert tracemalloc.get_traced_memory()[1] < 3_000_000
    tracemalloc.stop()
    assert max(own._lists[0]._starts[1:] - own._lists[0]._starts[:-1]) < 40


def test_entries_of_one_file(tmp_path):
    (tmp_path / "list.txt").write_text("\ufeffbad.test\nbad.test/page\n", encoding="utf-8")
    own = BlocklistSource(name="mine", path=str(tmp_path / "list.txt"))
    assert list(blocklists.entries(own)) == [("domains", "mine", "bad.test"), ("urls", "mine", "bad.test/page")]


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("bad.test\t# why", ["bad.test"]),
        ("bad.test # why # and more", ["bad.test"]),
        (" # why", []),
        ("0.0.0.0 bad.test worse.test\tworst.test # why", ["bad.test", "worse.test", "worst.test"]),
        ("127.0.0.1\tbad.test\t#why", ["bad.test"]),
        ("0.0.0.0 # nothing", ["0.0.0.0"]),
        ("ok.test##.banner", ["ok.test##.banner"]),  # hides a part of a page: blocks nobody
        ("bad.test/page#part", ["bad.test/page#part"]),
        ("||bad.test^ # why", ["bad.test"]),
        ("! why", []),
    ],
)
def test_a_line_blocks_all_that_it_names_and_its_comment_is_none_of_it(tmp_path, line, wanted):
    (tmp_path / "domains").write_text(f"{line}\n", encoding="utf-8")
    own = BlocklistSource(name="mine", path=str(tmp_path / "domains"))
    assert [entry for _, _, entry in blocklists.entries(own)] == wanted
