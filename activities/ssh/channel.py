"""Moving bytes through one channel without ever blocking on one direction."""

from __future__ import annotations

import select
import time
from collections.abc import Callable

import paramiko

# How long a turn may wait: whoever cancels the thread is heard after at most this.
SLICE_S = 0.5
# paramiko signals no "window is open again"; while input is left, turns are this short.
_WRITE_SLICE_S = 0.02
_PIECE = 1 << 17


class TransportLostError(Exception):
    """The transport under the channel has ended."""


class ChannelPump:
    """Feeds stdin and drains both outputs of a channel.

    Both outputs are drained before the exit status is looked at: reading only one of them, or waiting for the
    status first, hangs as soon as the other has filled its window.
    """

    def __init__(
        self,
        channel: paramiko.Channel,
        stdin: bytes,
        on_stdout: Callable[[bytes], object],
        on_stderr: Callable[[bytes], object],
    ) -> None:
        self._channel = channel
        self._stdin: memoryview | None = memoryview(stdin)
        self._on_stdout = on_stdout
        self._on_stderr = on_stderr
        self.last_heard = time.monotonic()
        self._poll = select.poll()
        self._poll.register(channel.fileno(), select.POLLIN)

    def turn(self) -> bool:
        """Move what can be moved, or wait up to SLICE_S. True when all is read and the command has ended.

        Raises TransportLostError; what a callback raises passes through.
        """
        ended = self._ended()
        wrote, read = self._write(), self._read()
        if read:
            self.last_heard = time.monotonic()
        elif ended:
            return True
        elif not wrote:
            self._wait()
        return False

    def _ended(self) -> bool:
        channel = self._channel
        return bool(channel.closed or (channel.exit_status_ready() and channel.eof_received))

    def _write(self) -> bool:
        if self._stdin is None or not self._channel.send_ready():
            return False
        try:
            if len(self._stdin):
                self._stdin = self._stdin[self._channel.send(self._stdin[:_PIECE].tobytes()) :]
            if not len(self._stdin):
                self._stdin = None
                self._channel.shutdown_write()
        except (OSError, EOFError, paramiko.SSHException):
            # The command ended without reading all of its input. Its output and status still count.
            self._stdin = None
        return True

    def _read(self) -> bool:
        channel, read = self._channel, False
        if channel.recv_ready() and (data := _received(channel.recv)):
            read = True
            self._on_stdout(data)
        if channel.recv_stderr_ready() and (data := _received(channel.recv_stderr)):
            read = True
            self._on_stderr(data)
        return read

    def _wait(self) -> None:
        slice_s = SLICE_S if self._stdin is None else _WRITE_SLICE_S
        if self._channel.eof_received:
            # From here on the descriptor is always readable; only the status is still to come.
            self._channel.status_event.wait(slice_s)
        else:
            self._poll.poll(slice_s * 1000)


def _received(receive: Callable[[int], bytes]) -> bytes:
    # Reading also tells the machine that there is room again, and that may find the transport gone.
    try:
        return receive(_PIECE)
    except (OSError, EOFError, paramiko.SSHException) as error:
        raise TransportLostError(str(error) or type(error).__name__) from error
