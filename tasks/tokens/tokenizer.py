"""A byte-level BPE with K2's special tokens, trained on a sample of the corpus.

Every text comes back exactly: nothing is normalised (an adopted tokenizer may bring it into Unicode's NFC), and all 256
bytes are in the alphabet. Text never encodes to a special token: a document that spells `<|im_end|>` stays text.
"""

from __future__ import annotations

import logging
import re
import unicodedata
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import pyarrow.parquet as pq
from tokenizers import AddedToken, Regex, decoders, models, pre_tokenizers, trainers
from tokenizers import Tokenizer as BPE

from model.storage import local_path
from model.vocabulary import first_special_id, special_ids, token_name
from tasks.artifact import Artifact, Step, sha256_file
from tasks.launch import Execution
from tasks.progress import Progress
from tasks.tokens.config import TokenizerConfig
from training.draw import draw

VERSION = 2  # raise it where the same inputs give other bytes (tasks/code.py)

log = logging.getLogger(__name__)

PIECE = 1 << 20
"""Most characters handed to the tokenizer at once; longer documents are cut where their tokens part anyway."""
MEASURED_BYTES = 256 << 10
"""Bytes of text a domain's compression is measured on."""
PROBES = (
    "The LOSS",
    "  leading and trailing blanks \t",
    "\r\n\tlines\n\n",
    "专家越多，损失越低。",
    "e\u0301 \u212b \ufb01 \uff21 \u2460 \U0001f642\u200d",
    # every byte that UTF-8 has: all characters of one or two bytes, and one for each first byte of longer ones
    "".join(map(chr, [*range(0x801), *range(0x1000, 0x10000, 0x1000), *range(0x10000, 0x110000, 0x30000)])),
)
"""Texts that an adopted tokenizer must give back."""


class TokenizerError(ValueError):
    """A tokenizer that cannot be trained or used as configured."""


def words(digits: int) -> str:
    """The regular expression whose matches no token crosses.

    In order: a run of Han characters; letters (with their marks) and at most one space or sign before them; up to
    `digits` digits; signs, with a space before and line ends after them; line ends; indentation; other white space.
    """
    return "|".join(
        [
            r"\p{Han}+",
            r"[^\r\n\p{L}\p{M}\p{N}]?[\p{L}\p{M}&&[^\p{Han}]]+",
            rf"\p{{N}}{{1,{digits}}}",
            r" ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*",
            r"\s*[\r\n]+",
            r"\s+(?!\S)",
            r"\s+",
        ]
    )


def pre_tokenizer(digits: int) -> pre_tokenizers.PreTokenizer:
    """Cuts text into words, and their bytes into characters of the byte-level alphabet."""
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(words(digits)), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def run(step: Step, execution: Execution) -> Artifact:
    """The stage: learn the tokenizer, or adopt the one that is named."""
    return build(step, step.input("corpus"))


def build(step: Step, corpus: Artifact) -> Artifact:
    """The tokenizer stage: train (or adopt) one tokenizer, measure it by domain, publish `tokenizer.json`."""
    config = step.config
    assert isinstance(config, TokenizerConfig)
    fractions = sample_fractions(config, corpus)
    if step.part("tokenizer") is None:
        sampled = {"documents": 0, "bytes": 0}
        tokenizer = adopt(config) if config.file else train(_sample(config, corpus, fractions, sampled), config)
        step.put("tokenizer", ".json", lambda path: path.write_text(tokenizer.to_str(), "utf-8"), statistics=sampled)
    part = step.part("tokenizer")
    assert part is not None
    tokenizer = load(step.path(part))
    return step.publish(
        {
            "vocabulary": tokenizer.get_vocab_size(with_added_tokens=True),
            "merges": tokenizer.get_vocab_size(with_added_tokens=False) - 256,
            "special": special_ids(config.vocabulary),
            "digits": config.digits,
            "sample": part.statistics,
            "bytes_per_token": measure(tokenizer, config, corpus),
        },
        ["tokenizer"],
    )


def train(texts: Iterator[str], config: TokenizerConfig) -> BPE:
    """Learn merges from `texts`. The result depends on the texts and the configuration alone (not on threads)."""
    tokenizer = BPE(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer(config.digits)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=first_special_id(config.vocabulary),
        min_frequency=2,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        max_token_length=config.longest_token,
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return with_special_tokens(tokenizer, config.vocabulary)


def adopt(config: TokenizerConfig) -> BPE:
    """The existing tokenizer that the configuration names, with K2's special tokens at their places. TokenizerError for
    one that cannot have them there, whose ids have holes, or that loses text (Unicode's NFC alone is let pass)."""
    path = local_path(config.file or "")
    if not path.is_file():
        raise TokenizerError(f"{path} does not exist: `tokenizer.file` names a tokenizer.json")
    if sha256_file(path) != config.sha256:
        raise TokenizerError(f"{path} has sha256 {sha256_file(path)}, not the configured {config.sha256}")
    tokenizer = _read(path)
    ids = list(tokenizer.get_vocab(with_added_tokens=True).values())
    if lacking := set(range(len(ids))) - set(ids):  # what is added then would take the id of another
        raise TokenizerError(
            f"{path} has {len(ids)} tokens and none with the id {min(lacking)}: ids must go up from 0, one a token"
        )
    with_special_tokens(tokenizer, config.vocabulary)
    _require_text(tokenizer, path, config.vocabulary)
    return tokenizer


def _require_text(tokenizer: BPE, path: Path, vocabulary: int) -> None:
    """TokenizerError where a text does not come back, or has a special token; a warning where it comes back in NFC."""
    tokenizer.encode_special_tokens = True  # as `load` has it; no part of the file
    matched = [token.content for token in tokenizer.get_added_tokens_decoder().values() if not token.special]
    probes = [*PROBES, *(f"a  {name}  b" for name in [*special_ids(vocabulary), *matched])]
    normalised = False
    for text, ids in zip(probes, encode_texts(tokenizer, probes), strict=True):
        if ids and max(ids) >= first_special_id(vocabulary):
            raise TokenizerError(f"{path} makes a special token of the text {text!r}: it must encode it as text")
        back = tokenizer.decode(ids, skip_special_tokens=False)
        if back not in (text, unicodedata.normalize("NFC", text)):
            at = next((place for place, pair in enumerate(zip(text, back, strict=False)) if pair[0] != pair[1]), 0)
            raise TokenizerError(
                f"{path} loses text ({text[at : at + 16]!r} comes back as {back[at : at + 16]!r}): adopt a byte-level "
                "BPE that changes nothing"
            )
        try:
            decode_bytes(tokenizer, ids)  # lineage reads tokens so
        except TokenizerError as error:
            raise TokenizerError(f"{path} cannot be used: {error}") from None
        normalised |= back != text
    if normalised:
        log.warning("%s brings text into Unicode's NFC: a letter with a separate accent comes back as one", path)


def with_special_tokens(tokenizer: BPE, vocabulary: int) -> BPE:
    """Fill `tokenizer` up to `vocabulary` entries: K2's special tokens at their ids, reserved ones between. Those that
    it has there already are flagged special if they were not; TokenizerError where they do not fit."""
    wanted = special_ids(vocabulary)
    size = tokenizer.get_vocab_size(with_added_tokens=True)
    for name, place in wanted.items():
        there = tokenizer.token_to_id(name)
        if there is not None and there != place:
            raise TokenizerError(
                f"the tokenizer has {name} at {there}, a vocabulary of {vocabulary} needs it at {place}: "
                f"set `tokenizer.vocabulary` to the tokenizer's own size ({size}), or rename the token in the file"
            )
    missing = [token_name(place, vocabulary) or f"<|unused_token_{place}|>" for place in range(size, vocabulary)]
    flagged = {token for token, added in tokenizer.get_added_tokens_decoder().items() if added.special}
    for token in range(first_special_id(vocabulary), size):
        if token not in flagged:  # as K2's own tool-call tokens: such a token is found in text
            missing.append(tokenizer.id_to_token(token) or "")
    tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in missing])
    misplaced = [name for name, place in wanted.items() if tokenizer.token_to_id(name) != place]
    if misplaced or tokenizer.get_vocab_size(with_added_tokens=True) != vocabulary:
        raise TokenizerError(
            f"the tokenizer's {size} entries leave no room for {misplaced[:3]} in a vocabulary of {vocabulary}: "
            f"raise `tokenizer.vocabulary` to at least {size + len(wanted)}"
        )
    return tokenizer


def load(path: Path) -> BPE:
    """The tokenizer at `path`, set to read special tokens in text as text; TokenizerError where there is none."""
    tokenizer = _read(path)
    tokenizer.encode_special_tokens = True
    return tokenizer


def _read(path: Path) -> BPE:
    try:
        tokenizer = BPE.from_file(str(path))
    except Exception as error:  # the library has no class of its own for it, and names no file
        raise TokenizerError(f"{path} is no tokenizer.json: {error}") from error
    # the file may have them from another use, and they would cut or fill every document
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def sha256_of(tokenizer: Artifact) -> str:
    """That of the tokenizer.json which the artifact lists."""
    (part,) = tokenizer.parts("tokenizer")
    return part.sha256


def encode_texts(tokenizer: BPE, texts: Sequence[str], piece: int = PIECE) -> list[list[int]]:
    """Token ids of each text, no special token among them. Threads are the tokenizer's own (RAYON_NUM_THREADS)."""
    pieces = [cut(text, piece) for text in texts]
    flat = tokenizer.encode_batch_fast([part for parts in pieces for part in parts], add_special_tokens=False)
    encoded = iter(flat)
    result: list[list[int]] = []
    for parts in pieces:
        ids: list[int] = []
        for _ in parts:
            ids += next(encoded).ids
        result.append(ids)
    return result


def cut(text: str, piece: int = PIECE) -> list[str]:
    """`text` in pieces of at most `piece` characters whose encodings join to that of the whole: each ends with a line
    end that no white space follows. A stretch without one is cut at its length (it still decodes to itself)."""
    pieces: list[str] = []
    start = 0
    while len(text) - start > piece:
        end = start + piece
        borders = [match.end() for match in re.finditer(r"\n(?=\S)", text[start : end + 1]) if match.end() <= piece]
        if borders:
            end = start + borders[-1]
        pieces.append(text[start:end])
        start = end
    if text[start:]:
        pieces.append(text[start:])
    return pieces


def decode_bytes(tokenizer: BPE, ids: Sequence[int]) -> bytes:
    """The exact bytes of `ids` (special tokens spelled by name): no replacement characters, unlike text."""
    special = set(tokenizer.get_added_tokens_decoder())
    values = byte_of_char()
    data = bytearray()
    for token in ids:
        text = tokenizer.id_to_token(token)
        if text is None:
            raise TokenizerError(f"token {token} is not in the tokenizer's vocabulary")
        try:
            data += text.encode() if token in special else bytes(values[char] for char in text)
        except KeyError:
            raise TokenizerError(f"token {token} ({text!r}) stands for no bytes: this is no byte-level BPE") from None
    return bytes(data)


def measure(tokenizer: BPE, config: TokenizerConfig, corpus: Artifact) -> dict[str, float]:
    """Bytes per token by domain, on documents of the highest draws: outside the sample while that leaves any."""
    texts: dict[str, list[tuple[float, str]]] = {}
    held: dict[str, int] = {}
    for domain, value, text in _draws(config, corpus):
        kept = texts.setdefault(domain, [])
        kept.append((value, text))
        held[domain] = held.get(domain, 0) + len(text.encode())
        if held[domain] > 4 * MEASURED_BYTES:
            texts[domain], held[domain] = _highest(kept)
    result: dict[str, float] = {}
    for domain, kept in sorted(texts.items()):
        chosen = [text for _, text in _highest(kept)[0]]
        tokens = sum(len(ids) for ids in encode_texts(tokenizer, chosen))
        result[domain] = round(sum(len(text.encode()) for text in chosen) / max(1, tokens), 4)
    return result


def sample_fractions(config: TokenizerConfig, corpus: Artifact) -> dict[str, float]:
    """Which part of each domain's documents the sample takes, from the corpus's own counts."""
    held = {domain: float(record["bytes"]) for domain, record in corpus.statistics["by_domain"].items()}
    unknown = sorted(set(config.mix) - set(held))
    if unknown:
        raise TokenizerError(f"`tokenizer.mix` names {unknown[0]!r}, the corpus has: {', '.join(sorted(held))}")
    weights = {domain: config.mix.get(domain, 0.0) for domain in held} if config.mix else held
    total = sum(weights.values())
    if not total:
        raise TokenizerError("the corpus has no text to learn a tokenizer from")
    return {
        domain: min(1.0, config.sample_bytes * weights[domain] / total / held[domain]) if held[domain] else 0.0
        for domain in sorted(held)
    }


def _sample(
    config: TokenizerConfig, corpus: Artifact, fractions: dict[str, float], counts: dict[str, int]
) -> Iterator[str]:
    """The sampled texts in the order of the corpus; `counts` is filled on the way."""
    held = corpus.statistics["by_domain"]
    expected = sum(fraction * held[domain]["bytes"] for domain, fraction in fractions.items())
    with Progress("tokenizer", expected / 1e6, "MB") as progress:
        for domain, value, text in _draws(config, corpus):
            if value < fractions.get(domain, 0.0):
                size = len(text.encode())
                counts["documents"] += 1
                counts["bytes"] += size
                progress.advance(size / 1e6)
                yield text
        progress.set(expected / 1e6, "merging")


def _draws(config: TokenizerConfig, corpus: Artifact) -> Iterator[tuple[str, float, str]]:
    """(domain, its draw in [0, 1), text) of every document."""
    for path in corpus.files("documents"):
        for batch in pq.ParquetFile(path).iter_batches(1024, columns=["id", "domain", "text"]):
            columns = batch.to_pydict()
            for name, domain, text in zip(columns["id"], columns["domain"], columns["text"], strict=True):
                yield domain, draw("tokenizer", config.seed, name), text


def _highest(kept: list[tuple[float, str]]) -> tuple[list[tuple[float, str]], int]:
    """Those of the highest draws that fill MEASURED_BYTES, and their bytes."""
    total, chosen = 0, []
    for value, text in sorted(kept, reverse=True):
        if total >= MEASURED_BYTES:
            break
        chosen.append((value, text))
        total += len(text.encode())
    return chosen, total


@cache
def byte_of_char() -> dict[str, int]:
    """The byte behind each character of the byte-level alphabet: printable Latin-1 stands for itself, the other bytes
    for the characters from U+0100 on, in order (GPT-2's table)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + place): byte for place, byte in enumerate(others)}
