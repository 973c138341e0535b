"""One authenticated connection to one machine, and commands over it."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import paramiko

from activities.ssh.channel import ChannelPump, TransportLostError
from activities.ssh.errors import ChannelError
from activities.ssh.handshake import open_transport
from activities.ssh.keys import host_key_text
from activities.ssh.target import SshTarget

_OPEN_CHANNEL_S = 10.0
_SESSION_RETRY_S = 0.05


@dataclass(frozen=True, slots=True)
class ExecResult:
    """What a finished command left: its status and both of its streams, complete."""

    exit_status: int
    stdout: bytes
    stderr: bytes


class Connection:
    """Use from several threads at once is fine; each call has a channel of its own."""

    def __init__(self, target: SshTarget, transport: paramiko.Transport) -> None:
        self.target = target
        self._transport = transport
        self._host_key = host_key_text(transport.get_remote_server_key())

    @classmethod
    def open(
        cls, target: SshTarget, deadline_s: float = 5.0, opened: socket.socket | None = None
    ) -> Connection:
        """Connect, unless `opened` is such a connection already, and log in within `deadline_s`.

        Raises ConnectError, HostKeyError, AuthError, or ChannelError when the machine hangs up in the login.
        """
        return cls(target, open_transport(target, deadline_s, opened))

    @property
    def host_key(self) -> str:
        """The host key the machine proved to hold, as `type base64`."""
        return self._host_key

    @property
    def alive(self) -> bool:
        """False once the transport has ended, for whatever reason."""
        return self._transport.is_active()

    def close(self) -> None:
        """End the connection; commands still running over it fail with ChannelError."""
        self._transport.close()

    def exec(self, command: str, stdin: bytes = b"", timeout_s: float = 30) -> ExecResult:
        """Run `command`, give it `stdin`, wait for its end.

        Any exit status is a result. Raises ChannelError when the connection breaks or `timeout_s` is over;
        what the command then does on the machine is unknown.
        """
        stdout, stderr = bytearray(), bytearray()
        status = self.stream(command, stdin, stdout.extend, stderr.extend, deadline_s=timeout_s)
        assert status is not None, "nothing asked the stream to stop"
        return ExecResult(status, bytes(stdout), bytes(stderr))

    def stream(
        self,
        command: str,
        stdin: bytes,
        on_stdout: Callable[[bytes], object],
        on_stderr: Callable[[bytes], object],
        should_stop: Callable[[], bool] = lambda: False,
        *,
        idle_s: float | None = None,
        deadline_s: float | None = None,
    ) -> int | None:
        """Run `command` and hand on its output as it comes, in this thread.

        `should_stop` is asked at least every 0.5 s; when it says so, the channel is closed and None returned.
        `idle_s` bounds the time without any byte from the machine, `deadline_s` the whole. Returns the exit
        status. Raises ChannelError; an exception from a callback closes the channel and passes through.
        """
        begun = time.monotonic()
        channel = self._start(command)
        try:
            pump = ChannelPump(channel, stdin, on_stdout, on_stderr)
            while not pump.turn():
                if should_stop():
                    return None
                self._check_time("no output for", idle_s, pump.last_heard)
                self._check_time("not finished after", deadline_s, begun)
            return self._status(channel, begun)
        except TransportLostError as error:
            raise self._failure(f"the connection broke: {error}", begun) from error
        finally:
            with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
                channel.close()

    def _start(self, command: str) -> paramiko.Channel:
        # The reply to an exec request is the one thing paramiko waits for without any limit.
        guard = threading.Timer(_OPEN_CHANNEL_S, self.close)
        guard.daemon = True
        begun = time.monotonic()
        try:
            channel = self._open_session(begun)
            guard.start()
            channel.exec_command(command)
        except (paramiko.SSHException, OSError, EOFError) as error:
            raise self._failure(
                f"starting a command failed: {str(error) or 'the connection was closed'}", begun
            ) from error
        finally:
            guard.cancel()
        return channel

    def _open_session(self, begun: float) -> paramiko.Channel:
        """A session channel. The machine counts a closed one until its command has ended: wait for it."""
        while True:
            try:
                return self._transport.open_session(timeout=_OPEN_CHANNEL_S)
            except paramiko.SSHException:
                # Not only ChannelException: paramiko gives the reason to one asking thread only.
                if not self.alive or time.monotonic() - begun > _OPEN_CHANNEL_S:
                    raise
                time.sleep(_SESSION_RETRY_S)

    def _status(self, channel: paramiko.Channel, begun: float) -> int:
        status = channel.recv_exit_status()
        if status < 0:
            raise self._failure("the connection ended before the command's exit status", begun)
        return status

    def _check_time(self, what: str, limit_s: float | None, since: float) -> None:
        if limit_s is not None and time.monotonic() - since > limit_s:
            raise self._failure(f"{what} {limit_s:g} s", since)

    def _failure(self, text: str, begun: float) -> ChannelError:
        return ChannelError(f"{self.target.endpoint}: {text} (after {time.monotonic() - begun:.2f} s)")
