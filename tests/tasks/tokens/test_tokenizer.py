"""The tokenizer: exact round trips, what no token crosses, K2's special tokens, determinism, adoption."""

from __future__ import annotations

import hashlib
import json
import resource
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from model.vocabulary import K2_SPECIAL_IDS, K2_VOCABULARY, SPECIAL_TOKENS, special_ids
from tasks.artifact import Artifact, Step
from tasks.tokens import tokenizer
from tasks.tokens.config import TokenizerConfig
from tasks.tokens.tokenizer import TokenizerError, adopt, cut, decode_bytes, encode_texts, train

from .corpus import PIECES, documents, text_of

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=80)
mixed = st.lists(
    st.sampled_from(PIECES),
    max_size=25,
).map("".join)
TEXTS = [row["text"] for rows in documents(40).values() for row in rows]


@given(st.one_of(text, mixed))
@settings(max_examples=300, deadline=None)
def test_any_text_comes_back_exactly(bpe: Tokenizer, value: str) -> None:
    (ids,) = encode_texts(bpe, [value])
    assert bpe.decode(ids, skip_special_tokens=False) == value
    assert decode_bytes(bpe, ids) == value.encode()
    assert all(token < special_ids(700)["[BOS]"] for token in ids)  # text never becomes a special token


@given(mixed, st.integers(1, 12))
@settings(max_examples=200, deadline=None)
def test_pieces_join_to_the_text_and_to_its_encoding_where_lines_end(bpe: Tokenizer, value: str, piece: int) -> None:
    pieces = cut(value, piece)
    assert "".join(pieces) == value
    assert all(0 < len(part) <= piece for part in pieces)
    if all(part.endswith("\n") for part in pieces[:-1]) and not any(part[:1].isspace() for part in pieces[1:]):
        assert [ids for part in pieces for ids in encode_texts(bpe, [part])[0]] == encode_texts(bpe, [value])[0]


def test_long_documents_are_cut_at_line_ends() -> None:
    value = "".join(text_of("code", number) for number in range(200))
    pieces = cut(value, 1000)
    assert len(pieces) > 10
    assert all(part.endswith("\n") and not part[0].isspace() for part in pieces[:-1])


@pytest.mark.parametrize(("digits", "expected"), [(1, ["1", "2", "3", "4", "5"]), (3, ["123", "45"])])
def test_digits_are_grouped_as_configured(digits, expected) -> None:
    numbers = (f"{number} 12345 12345" for number in range(500))
    bpe = train(numbers, TokenizerConfig(vocabulary=400, digits=digits))
    (ids,) = encode_texts(bpe, ["12345"])
    assert [bpe.id_to_token(token) for token in ids] == expected


def test_no_token_crosses_words_scripts_or_lines(bpe: Tokenizer) -> None:
    special = set(SPECIAL_TOKENS)
    for token in range(256, bpe.get_vocab_size()):
        name = bpe.id_to_token(token)
        if name in special or name.startswith("<|reserved"):
            continue
        try:
            value = decode_bytes(bpe, [token]).decode()
        except UnicodeDecodeError:  # part of a character
            continue
        letters = [char for char in value if char.isalpha()]
        han = [char for char in letters if "\u4e00" <= char <= "\u9fff"]
        assert not (han and len(han) < len(letters)), value
        assert not any(char.isdigit() for char in value) or len(value) == 1, value
        assert " " not in value.strip(" ") or value.isspace(), value


def test_special_tokens_have_k2s_ids_at_k2s_size_and_end_smaller_vocabularies() -> None:
    config = TokenizerConfig(vocabulary=K2_VOCABULARY)
    bpe = train(iter(TEXTS), config)
    assert {name: bpe.token_to_id(name) for name in SPECIAL_TOKENS} == K2_SPECIAL_IDS
    assert (bpe.token_to_id("[BOS]"), bpe.token_to_id("[EOS]"), bpe.token_to_id("[PAD]")) == (163584, 163585, 163839)
    assert bpe.token_to_id("<|reserved_token_163589|>") == 163589
    assert bpe.get_vocab_size() == K2_VOCABULARY
    small = train(iter(TEXTS), TokenizerConfig(vocabulary=600))
    assert [small.id_to_token(600 - len(SPECIAL_TOKENS) + k) for k in range(len(SPECIAL_TOKENS))] == list(
        SPECIAL_TOKENS
    )
    assert small.get_vocab_size() == 600


def test_training_does_not_depend_on_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    found = set()
    for parallel in ("true", "false", "true"):
        monkeypatch.setenv("TOKENIZERS_PARALLELISM", parallel)
        found.add(train(iter(TEXTS), TokenizerConfig(vocabulary=900)).to_str())
    assert len(found) == 1


def test_no_token_is_longer_than_configured() -> None:
    def longest(limit: int) -> int:
        config = TokenizerConfig(vocabulary=400, longest_token=limit)
        bpe = train(iter(["-" * 200, "=" * 300, "a" * 100] * 5), config)
        return max(len(bpe.id_to_token(token)) for token in range(bpe.get_vocab_size(with_added_tokens=False)))

    assert longest(16) <= 16 < longest(64) <= 64


def test_the_stage_publishes_its_compression_by_domain(learned: tuple[Step, Artifact], bpe: Tokenizer) -> None:
    statistics = learned[1].statistics
    assert set(statistics["bytes_per_token"]) == {"code", "knowledge", "math", "web"}
    assert all(1 < value < 8 for value in statistics["bytes_per_token"].values())
    assert statistics["vocabulary"] == 700
    assert statistics["merges"] == 700 - len(SPECIAL_TOKENS) - 256
    assert statistics["special"]["[PAD]"] == 699
    assert statistics["sample"]["bytes"] > 0


def test_the_sample_follows_the_mix_and_the_budget(root: Path, corpus: tuple[Step, Artifact]) -> None:
    held = corpus[1].statistics["by_domain"]
    config = TokenizerConfig(vocabulary=400, sample_bytes=12_000, mix={"math": 1, "code": 1})
    fractions = tokenizer.sample_fractions(config, corpus[1])
    assert fractions["web"] == fractions["knowledge"] == 0
    assert fractions["math"] * held["math"]["bytes"] == pytest.approx(6000)
    counts = {"documents": 0, "bytes": 0}
    texts = list(tokenizer._sample(config, corpus[1], fractions, counts))
    assert counts == {"documents": len(texts), "bytes": sum(len(value.encode()) for value in texts)}
    assert 6_000 < counts["bytes"] < 18_000
    with pytest.raises(TokenizerError, match="'poetry'"):
        tokenizer.sample_fractions(TokenizerConfig(vocabulary=400, mix={"poetry": 1}), corpus[1])


def test_an_existing_tokenizer_is_used_as_it_is_or_completed(tmp_path: Path, bpe: Tokenizer) -> None:
    file = tmp_path / "tokenizer.json"
    bpe.save(str(file))
    sha256 = hashlib.sha256(file.read_bytes()).hexdigest()
    same = adopt(TokenizerConfig(vocabulary=700, file=str(file), sha256=sha256))
    assert same.get_vocab() == bpe.get_vocab()
    with pytest.raises(TokenizerError, match=r"set `tokenizer\.vocabulary` to the tokenizer's own size \(700\)"):
        adopt(TokenizerConfig(vocabulary=900, file=str(file), sha256=sha256))
    with pytest.raises(TokenizerError, match="not the configured"):
        adopt(TokenizerConfig(vocabulary=700, file=str(file), sha256="0" * 64))
    with pytest.raises(TokenizerError, match="does not exist"):
        adopt(TokenizerConfig(vocabulary=700, file=str(tmp_path / "none.json"), sha256=sha256))
    other = tmp_path / "other.json"
    other.write_text("{}")
    with pytest.raises(TokenizerError, match=r"other\.json is no tokenizer\.json"):
        adopt(TokenizerConfig(vocabulary=700, file=str(other), sha256=hashlib.sha256(b"{}").hexdigest()))

    foreign().save(str(file))
    sha256 = hashlib.sha256(file.read_bytes()).hexdigest()
    completed = adopt(TokenizerConfig(vocabulary=600, file=str(file), sha256=sha256))
    assert {name: completed.token_to_id(name) for name in SPECIAL_TOKENS} == special_ids(600)
    with pytest.raises(TokenizerError, match="at least 317"):
        adopt(TokenizerConfig(vocabulary=310, file=str(file), sha256=sha256))


def foreign(cut: Any = None, **model: Any) -> Tokenizer:
    """A byte-level BPE of other make: 300 entries, GPT-2's pre-tokenizer or `cut`."""
    bpe = Tokenizer(models.BPE(**model))
    bpe.pre_tokenizer, bpe.decoder = cut or pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    bpe.train_from_iterator(TEXTS, trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet, show_progress=False))
    return bpe


def adopted(folder: Path, other: Tokenizer | dict[str, Any]) -> Tokenizer:
    """What the stage would publish of a tokenizer (or its tokenizer.json), read again."""
    text = json.dumps(other) if isinstance(other, dict) else other.to_str()
    size = Tokenizer.from_str(text).get_vocab_size()
    file = folder / "theirs.json"
    file.write_text(text)
    there = Tokenizer.from_str(text).token_to_id("[PAD]") is not None
    config = TokenizerConfig(
        vocabulary=size if there else size + len(SPECIAL_TOKENS),
        file=str(file),
        sha256=hashlib.sha256(file.read_bytes()).hexdigest(),
    )
    published = folder / "ours.json"
    published.write_text(adopt(config).to_str())
    return Tokenizer.from_file(str(published))


def test_truncation_and_padding_of_another_use_cut_and_fill_no_document(tmp_path: Path) -> None:
    texts = [TEXTS[0] * 3, "a"]
    whole = [len(ids) for ids in encode_texts(foreign(), texts)]
    for change in (lambda bpe: bpe.enable_truncation(8), lambda bpe: bpe.enable_padding()):
        changed = foreign()
        change(changed)
        found = adopted(tmp_path, changed)
        assert (found.truncation, found.padding) == (None, None)
        assert [len(ids) for ids in encode_texts(found, texts)] == whole
        assert [len(ids) for ids in encode_texts(tokenizer.load(tmp_path / "theirs.json"), texts)] == whole


def test_control_tokens_that_are_not_flagged_special_stay_text_in_text(tmp_path: Path) -> None:
    """K2's own tool-call tokens are not; others may be plain entries of the model."""
    other = foreign()
    names = list(special_ids(300 + len(SPECIAL_TOKENS)))
    other.add_special_tokens(names)
    record = json.loads(other.to_str())
    for token in record["added_tokens"]:
        token["special"] = "tool" not in token["content"]
    record["model"]["vocab"]["[BOS]"] = 300
    del record["added_tokens"][0]
    found = adopted(tmp_path, record)
    assert {name: found.token_to_id(name) for name in names} == special_ids(300 + len(names))
    assert all(token.special for token in found.get_added_tokens_decoder().values())
    found.encode_special_tokens = True
    (ids,) = encode_texts(found, ["<|tool_call_begin|> [EOS] [BOS]"])
    assert max(ids) < 300


LIKE_GPT_4 = pre_tokenizers.Sequence(
    [
        pre_tokenizers.Split(Regex(r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+|[^\r\n\p{L}\p{N}]?\p{L}+|\s+"), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ]
)


@pytest.mark.parametrize(("cut_at", "merges"), [(None, False), (LIKE_GPT_4, False), (LIKE_GPT_4, True)])
def test_tokenizers_like_gpt_2s_qwens_and_tiktokens_are_adopted(tmp_path: Path, caplog, cut_at, merges) -> None:
    other = foreign(cut_at, ignore_merges=merges)
    other.add_special_tokens(["<|endoftext|>"])
    other.add_tokens(["<think>", "    "])  # Qwen's are not special; GPT-NeoX has runs of blanks
    found = adopted(tmp_path, other)
    assert not caplog.text
    other.normalizer = normalizers.NFC()  # as Qwen has it
    found = adopted(tmp_path, other)
    (said,) = caplog.messages
    assert "brings text into Unicode's NFC" in said
    (ids,) = encode_texts(found, ["e\u0301 损失"])
    assert decode_bytes(found, ids).decode() == "\xe9 损失"


def lowercase(record: dict[str, Any]) -> None:
    record["normalizer"] = {"type": "Lowercase"}


def prefix(record: dict[str, Any]) -> None:
    record["pre_tokenizer"]["add_prefix_space"] = True


def undecoded(record: dict[str, Any]) -> None:
    record["decoder"] = None


def without_byte(record: dict[str, Any]) -> None:
    """One of the 256 is called something else."""
    vocabulary = record["model"]["vocab"]
    vocabulary["unused"] = vocabulary.pop("\u0143")


def hole(record: dict[str, Any]) -> None:
    vocabulary = record["model"]["vocab"]
    vocabulary[max(vocabulary, key=vocabulary.get)] = len(vocabulary)


def stripping(record: dict[str, Any]) -> None:
    fields = {"single_word": False, "lstrip": True, "rstrip": False, "normalized": False, "special": False}
    record["added_tokens"] = [{"id": 300, "content": "<mask>"} | fields]


def merged(record: dict[str, Any]) -> None:
    """`[BOS]` is a word that merges make."""
    vocabulary = record["model"]["vocab"]
    names = ["[B", "[BO", "[BOS", *special_ids(303 + len(SPECIAL_TOKENS))]
    vocabulary.update({name: 300 + place for place, name in enumerate(names)})
    record["pre_tokenizer"]["use_regex"] = False
    record["model"]["merges"] = [["[", "B"], ["[B", "O"], ["[BO", "S"], ["[BOS", "]"]]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lowercase, r"loses text \('The LOSS' comes back as 'the loss'\)"),
        (prefix, r"loses text \('The LOSS' comes back as ' The LOSS'\)"),
        (undecoded, "loses text"),
        (without_byte, "loses text"),
        (stripping, "loses text"),
        (hole, r"300 tokens and none with the id 299"),
        (merged, r"makes a special token of the text 'a  \[BOS\]  b'"),
    ],
)
def test_a_tokenizer_that_loses_text_or_shares_ids_is_not_adopted(tmp_path: Path, change, said: str) -> None:
    record = json.loads(foreign().to_str())
    change(record)
    with pytest.raises(TokenizerError, match=said):
        adopted(tmp_path, record)


def test_a_tokenizer_that_is_not_byte_level_is_not_adopted(tmp_path: Path) -> None:
    other = Tokenizer(models.BPE(byte_fallback=True))
    other.normalizer = normalizers.Replace(" ", "\u2581")
    other.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()])
    names = [f"<0x{byte:02X}>" for byte in range(256)]
    trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=names, initial_alphabet=["\u2581"])
    other.train_from_iterator(["the loss"], trainer)
    record = json.loads(other.to_str())
    record["added_tokens"] = []
    with pytest.raises(TokenizerError, match=r"theirs\.json cannot be used: .* this is no byte-level BPE"):
        adopted(tmp_path, record)


def test_the_probes_of_an_adopted_tokenizer_have_every_byte_that_text_has() -> None:
    never = {0xC0, 0xC1, *range(0xF5, 0x100)}  # in UTF-8
    assert set("".join(tokenizer.PROBES).encode()) == set(range(256)) - never


def test_where_an_existing_tokenizer_lies_is_not_identity() -> None:
    one = TokenizerConfig(vocabulary=700, file="/a/tokenizer.json", sha256="0" * 64)
    two = TokenizerConfig(vocabulary=700, file="/b/tokenizer.json", sha256="0" * 64)
    assert one.model_dump() == two.model_dump()


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"vocabulary": 100}, "cannot be laid out"),
        ({"vocabulary": 200_000}, "cannot be laid out"),
        ({"vocabulary": 700, "file": "x"}, "go together"),
        ({"vocabulary": 700, "mix": {"web": -1}}, "weights"),
        ({"vocabulary": 700, "digits": 2}, "digits"),
    ],
)
def test_impossible_configurations_are_refused(fields, said) -> None:
    with pytest.raises(ValidationError, match=said):
        TokenizerConfig(**fields)


def test_a_disk_that_takes_no_more_is_told_as_such(root: Path, corpus: tuple[Step, Artifact]) -> None:
    """The library's own `save` raises a bare Exception, which nobody would take for a full disk."""
    step = Step("tokenizer", TokenizerConfig(vocabulary=650), str(root), (corpus[0],))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2_000, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            tokenizer.build(step, corpus[1])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("text", ["", "extends: laptop", "{}", "[1]"])
def test_a_file_that_is_no_tokenizer_is_told_by_its_name(tmp_path: Path, text: str) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(text)
    with pytest.raises(TokenizerError, match=r"is no tokenizer\.json"):
        tokenizer.load(path)
    with pytest.raises(TokenizerError, match=r"is no tokenizer\.json"):
        adopt(TokenizerConfig(file=str(path), sha256=hashlib.sha256(text.encode()).hexdigest()))
