"""One choice while it is generated: tokens in, pieces out, cut where a stop string comes."""

from __future__ import annotations

from collections.abc import Sequence

from model.chat import Chat, Text
from model.reply import Piece, Reply

NOTHING = Reply("")
"""What is read of a text that is no turn, or of a turn that a stop string cuts off."""


class StopStrings:
    """Text passed on up to the stop string that is complete first, whatever pieces it comes in; what may be the
    beginning of one is held back."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops, self._held = stops, ""
        self.met = False

    def add(self, text: str) -> str:
        """What of the text so far can be shown."""
        text = self._held + text
        found = [(place + len(stop), place) for stop in self._stops if (place := text.find(stop)) >= 0]
        if found:
            self.met, self._held = True, ""
            return text[: min(found)[1]]
        begun = max((_begun(text, stop) for stop in self._stops), default=0)
        self._held = text[len(text) - begun :]
        return text[: len(text) - begun]

    def rest(self) -> str:
        """What was held back, where nothing more comes."""
        text, self._held = self._held, ""
        return text


def _begun(text: str, stop: str) -> int:
    """How many characters at the end of `text` begin `stop`."""
    return next((size for size in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:size])), 0)


class Turn:
    """An assistant's turn, or with `raw` any text that goes on."""

    def __init__(self, chat: Chat, stops: Sequence[str], raw: bool) -> None:
        self._stops = StopStrings(stops)
        self._stream = None if raw else chat.stream()
        self._text = Text(chat)

    @property
    def stopped(self) -> bool:
        """Whether a stop string came: nothing after it is wanted."""
        return self._stops.met

    def add(self, token: int) -> list[Piece]:
        """What this token lets be shown."""
        return self._cut(self._stream.add([token]) if self._stream else [Piece("content", self._text.add(token))])

    def end(self) -> tuple[list[Piece], Reply]:
        """What was held back, and the turn with its calls, good or broken; nothing is added after it."""
        if self.stopped:
            return [], NOTHING
        pieces = self._cut(self._stream.rest() if self._stream else [Piece("content", self._text.rest())])
        if not self.stopped and (held := self._stops.rest()):
            pieces.append(Piece("content", held))
        return pieces, self._stream.reply() if self._stream and not self.stopped else NOTHING

    def _cut(self, pieces: Sequence[Piece]) -> list[Piece]:
        shown = []
        for piece in pieces:
            if self.stopped:
                break
            if piece.kind == "content":
                if text := self._stops.add(piece.text):
                    shown.append(Piece("content", text))
            else:
                if held := self._stops.rest():
                    shown.append(Piece("content", held))
                shown.append(piece)
        return shown
