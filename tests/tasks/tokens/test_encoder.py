"""The kernels give the library's tokens, whatever the text; another tokenizer is the library's."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from model.vocabulary import special_ids
from tasks.tokens import encoder
from tasks.tokens.config import TokenizerConfig
from tasks.tokens.encoder import Encoder, classes
from tasks.tokens.tokenizer import decode_bytes, load, train, with_special_tokens

from .corpus import PIECES, documents

TEXTS = [row["text"] for rows in documents(40).values() for row in rows]
REPETITIVE = ["ab" * 9 + "abc" * 5, "aaaa aaa aa a", "====----====", "损失损失损", "  \n\n   \t x", "1234567 12 1"]
PARTS = [
    *PIECES,
    *("〇", "⺀", "々", "〡", "ー", "ⅷ", "½"),
    *("a" * 15, "b" * 16, "ab" * 40, "!" * 20, "\x00", "\U000e0101", "𠀀", "\u200d", "\ufeff", "_", "-"),
]
anything = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=60),
    st.lists(st.sampled_from(PARTS), max_size=25).map("".join),
    st.text("ab", max_size=200),
    st.text("ab \n1一", max_size=60),
)


@pytest.fixture(scope="module", params=[1, 3])
def bpe(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    config = TokenizerConfig(vocabulary=900, digits=request.param)
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    train(iter([*TEXTS, *REPETITIVE * 3]), config).save(str(path))
    return load(path)


@pytest.fixture(scope="module")
def made(bpe: Tokenizer) -> Encoder:
    return Encoder(bpe)


def plain(bpe: Tokenizer, texts: list[str]) -> list[list[int]]:
    """The library's own answer."""
    return [encoded.ids for encoded in bpe.encode_batch(texts, add_special_tokens=False)]


def tokens_of(made: Encoder, texts: list[str], **borders: list[int]) -> list[list[int]]:
    ids_T, end_N = made.encode(pa.array(texts, pa.string()), **borders)
    assert ids_T.dtype == np.uint32
    return [piece.tolist() for piece in np.split(ids_T, end_N[:-1])] if texts else []


@given(st.lists(anything, min_size=1, max_size=4))
@example(["", "a", ""])
@example(["".join(PARTS)])
@settings(max_examples=200, deadline=None)
def test_the_tokens_are_the_librarys(bpe: Tokenizer, made: Encoder, texts: list[str]) -> None:
    assert made.kernel is not None
    expected = plain(bpe, texts)
    assert tokens_of(made, texts) == expected
    assert tokens_of(made, texts) == expected  # now with the words it remembers
    for text, ids in zip(texts, expected, strict=True):
        assert decode_bytes(bpe, ids) == text.encode()


def test_no_character_that_is_not_asked_for_has_a_class() -> None:
    points = [point for point in range(encoder.LAST_LETTER, encoder.CODE_POINTS) if point not in encoder.MARKS]
    split = pre_tokenizers.Split(Regex(r"[\p{L}\p{M}\p{N}\s\p{Han}]+"), behavior="removed", invert=True)
    assert split.pre_tokenize_str("".join(map(chr, points))) == []
    assert not classes()[points].any()


def test_classes_are_those_of_the_characters() -> None:
    table = classes()
    flags = {"a": encoder.LETTER, "é": encoder.LETTER, "\u0301": encoder.LETTER, "7": encoder.NUMBER}
    flags |= {"½": encoder.NUMBER, "一": encoder.LETTER | encoder.HAN, "〇": encoder.NUMBER | encoder.HAN}
    flags |= {"⺀": encoder.HAN, " ": encoder.SPACE, "\n": encoder.SPACE | encoder.LINE, "!": 0, "🙂": 0, "\x00": 0}
    assert {char: table[ord(char)] for char in flags} == flags


def test_characters_of_every_kind_meet_as_in_the_library(bpe: Tokenizer) -> None:
    """Every border between classes of characters, and each kind of character next to any other."""
    table = classes()
    borders = np.flatnonzero(np.diff(table)) + 1
    points = [int(point) for border in borders for point in (border - 1, border) if not 0xD800 <= point < 0xE000]
    texts = [f"x{c}{c} {c}1{c}\n{c}  {c}!{c}" for c in map(chr, points)]
    texts += [a + b + c for a in PARTS for b in PARTS for c in (" ", "x", "一", "\n")]
    assert tokens_of(Encoder(bpe), texts) == plain(bpe, texts)


def test_real_text_and_long_words(bpe: Tokenizer) -> None:
    house = Path(__file__).parents[3]
    texts = [path.read_text() for folder in ("docs", "tasks/tokens") for path in sorted((house / folder).glob("*.*"))]
    pick = random.Random(0)
    texts += ["".join(pick.choices("ab", k=20_000)), "x" * 50_000, "一二" * 9_000, " " * 30_000 + "x", "=" * 40_000]
    assert tokens_of(Encoder(bpe), texts) == plain(bpe, texts)


def test_words_that_take_each_others_slot(bpe: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoder, "REMEMBERED", 4)
    made = Encoder(bpe)
    assert made.kernel is not None
    assert len(made.kernel.words_W2) == 4
    assert tokens_of(made, TEXTS) == plain(bpe, TEXTS)


def test_head_and_tail_enclose_what_has_tokens(bpe: Tokenizer) -> None:
    found = tokens_of(Encoder(bpe), ["", "a", "", "b c"], head=[7], tail=[8, 9])
    expected = plain(bpe, ["", "a", "", "b c"])
    assert found == [[7, *ids, 8, 9] if ids else [] for ids in expected]


def test_slices_and_large_strings_and_nothing(bpe: Tokenizer) -> None:
    made = Encoder(bpe)
    for kind in (pa.string(), pa.large_string()):
        ids_T, end_N = made.encode(pa.array(TEXTS, kind)[3:9])
        assert [piece.tolist() for piece in np.split(ids_T, end_N[:-1])] == plain(bpe, TEXTS[3:9])
        for empty in ([], [""], ["", ""]):
            ids_T, end_N = made.encode(pa.array(empty, kind))
            assert (len(ids_T), end_N.tolist()) == (0, [0] * len(empty))


def foreign() -> Tokenizer:
    made = Tokenizer(models.BPE())
    made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator(TEXTS, trainers.BpeTrainer(vocab_size=500, initial_alphabet=alphabet))
    return made


def changed(bpe: Tokenizer, **fields: object) -> Tokenizer:
    made = Tokenizer.from_str(bpe.to_str())
    made.encode_special_tokens = True
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def test_another_make_of_tokenizer_is_left_to_the_library(bpe: Tokenizer) -> None:
    from tokenizers import normalizers

    complete = with_special_tokens(foreign(), 600)
    complete.encode_special_tokens = True
    spelled = changed(bpe, normalizer=normalizers.NFC())
    named = changed(bpe)
    named.add_tokens(["loss of"])
    literal = changed(bpe, encode_special_tokens=False)
    for made in (complete, spelled, named, literal):
        assert Encoder(made).kernel is None
        texts = [text for text in (*TEXTS, *PARTS) if "[EOS]" not in text and "<|" not in text]
        assert tokens_of(Encoder(made), texts) == plain(made, texts)
    assert Encoder(changed(bpe)).kernel is not None


def test_special_tokens_in_text_stay_text(bpe: Tokenizer) -> None:
    first = special_ids(900)["[BOS]"]
    (ids,) = tokens_of(Encoder(bpe), ["[BOS]<|im_end|>[EOS]<|tool_call_begin|>[PAD]"])
    assert max(ids) < first
