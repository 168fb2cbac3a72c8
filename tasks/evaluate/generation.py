"""Text from a released checkpoint, piece by piece as it comes: what `openk2 generate` shows. An INT4 checkpoint is
dequantised: the numbers are those that an INT4 engine multiplies with, the speed is not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer

from model.chat import Chat, Text, user
from model.generate import Generator, Request
from model.transformer import Transformer
from tasks.evaluate.checkpoint import ReleaseError, read_checkpoint


@dataclass(frozen=True)
class Released:
    """A released folder in memory: the network and its chat format."""

    model: Transformer
    chat: Chat

    @classmethod
    def load(cls, folder: Path) -> Released:
        """ReleaseError where the folder is no released checkpoint."""
        if not (folder / "tokenizer.json").is_file():
            raise ReleaseError(f"{folder} has no tokenizer.json: give the folder of a released checkpoint")
        return cls(read_checkpoint(folder), Chat(Tokenizer.from_file(str(folder / "tokenizer.json"))))

    def prompt(self, text: str, chat: bool = True) -> list[int]:
        """The ids that are continued: a user turn and the header of the answer, or the text as it is."""
        if chat:
            return self.chat.prompt([user(text)])
        return self.chat.beginning(text, self.model.config.bos_token_id)

    def generate(
        self,
        prompt: Sequence[int],
        max_new_tokens: int,
        temperature: float = 0.0,
        seed: int = 0,
        on_text: Callable[[str], None] | None = None,
    ) -> str:
        """Continue `prompt` until the end of the turn or document; the whole text.

        Args:
            prompt: token ids.
            max_new_tokens: cut to what the model's window leaves.
            temperature: 0 takes the likeliest token.
            seed: names the sample.
            on_text: called with each piece of text as it is certain; the pieces joined are the whole.

        Raises:
            ValueError: the prompt fills the window already.
        """
        window = self.model.config.max_position_embeddings
        if len(prompt) >= window:
            raise ValueError(f"the prompt has {len(prompt)} tokens and the model's window {window}: shorten it")
        stops = (self.chat.stop, self.model.config.eos_token_id)
        budget = min(max_new_tokens, window - len(prompt))
        request = Request(tuple(prompt), budget, temperature, stop_ids=stops, seed=seed)
        decoded, said = Text(self.chat), list[str]()

        def give(text: str) -> None:
            if text:
                said.append(text)
                if on_text is not None:
                    on_text(text)

        def hear(_: int, token: int) -> None:
            if token not in stops:
                give(decoded.add(token))

        for _ in Generator(self.model, max_rows=1).stream([request], hear):
            pass
        give(decoded.rest())
        return "".join(said)
