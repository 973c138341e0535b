"""Telling a step's bytes from the supervisor's words on one stream."""

from __future__ import annotations

from collections.abc import Callable


class FrameReader:
    """Splits a stream into data and frames of the form `\\n#bringup NONCE WORDS\\n`.

    The nonce is made anew for each exec, so a step cannot write one by accident. Whatever comes before the
    frame `begin` (a login shell's greeting, say) is not the step's and goes to `noise`, up to 4 KiB.
    `on_frame` is called for each frame: whatever a login shell says, that was the supervisor.
    """

    def __init__(self, nonce: str, on_frame: Callable[[], None] = lambda: None) -> None:
        self._mark = f"\n#bringup {nonce} ".encode()
        self._held = b""
        self._begun = False
        self._on_frame = on_frame
        self._noise = bytearray()
        self.frames: list[str] = []

    @property
    def noise(self) -> str:
        """What was said before the beginning, for messages."""
        return (
            bytes(self._noise[-4096:] + (b"" if self._begun else self._held))
            .decode("utf-8", "replace")
            .strip()
        )

    def feed(self, data: bytes) -> bytes:
        """Take what came; give what of it is certainly the step's. Part of a possible mark is held back."""
        buffer, step = self._held + data, bytearray()
        while (at := buffer.find(self._mark)) >= 0:
            end = buffer.find(b"\n", at + len(self._mark))
            if end < 0:
                break
            self._emit(buffer[:at], step)
            self._frame(buffer[at + len(self._mark) : end].decode("utf-8", "replace"))
            buffer = buffer[end + 1 :]
        keep = at if at >= 0 else len(buffer) - self._partial(buffer)
        self._emit(buffer[:keep], step)
        self._held = buffer[keep:]
        return bytes(step)

    def rest(self) -> bytes:
        """What was held back and, the stream having ended, turned out to be no mark."""
        rest, self._held = (self._held if self._begun else b""), b""
        return rest

    def _frame(self, words: str) -> None:
        self._on_frame()
        if words == "begin":
            self._begun = True
        elif words != "alive":
            self.frames.append(words)

    def _emit(self, data: bytes, step: bytearray) -> None:
        if self._begun:
            step += data
        else:
            self._noise += data
            del self._noise[:-4096]

    def _partial(self, buffer: bytes) -> int:
        """Length of the longest end of `buffer` that could begin a mark."""
        at = buffer.rfind(b"\n", max(0, len(buffer) - len(self._mark)))
        return len(buffer) - at if at >= 0 and self._mark.startswith(buffer[at:]) else 0
