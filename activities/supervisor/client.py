"""Running steps on a machine through its supervisor."""

from __future__ import annotations

import secrets
from collections.abc import Callable

from activities.ssh.connection import Connection
from activities.ssh.errors import ChannelError
from activities.supervisor import replies
from activities.supervisor.errors import SupervisorError, classify
from activities.supervisor.frames import FrameReader
from activities.supervisor.script import DEFAULT_BASE, Layout, script
from activities.supervisor.spec import (
    CancelProof,
    MachineFacts,
    StepOutcome,
    StepSpec,
    validate_key,
    validate_token,
)

_TICKS_PER_S = 50
_GRACE_S = 5.0
# The supervisor says it is alive at least every half second while a step is followed.
_IDLE_S = 30.0
_SLACK_S = 60.0
# What a shell answers for a script that is not there: 2 (dash), 127 (bash, busybox).
_NOT_THERE = (2, 127)


class Supervisor:
    """The supervisor of the machine at the other end of `connection`; made for each use, keeps nothing.

    Every method is blocking, at most half a second deaf to `should_stop`, and safe to repeat. They raise
    SshError for the connection, TokenRefused for a claim that was overtaken, SupervisorError for the rest.
    """

    def __init__(self, connection: Connection, base: str = DEFAULT_BASE) -> None:
        if not base.startswith("/") or base.endswith("/"):
            raise ValueError(f"supervisor folder {base!r} must be absolute, without a slash at its end")
        self._connection = connection
        self._layout = Layout(base, sudo=connection.target.user != "root")

    def run(
        self,
        spec: StepSpec,
        *,
        stdout_offset: int = 0,
        stderr_offset: int = 0,
        on_stdout: Callable[[int, bytes], None],
        on_stderr: Callable[[int, bytes], None],
        should_stop: Callable[[], bool] = lambda: False,
        on_contact: Callable[[], None] = lambda: None,
        grace_s: float = _GRACE_S,
    ) -> StepOutcome | None:
        """Start the step or attach to it, hand on its output from the offsets, return how it ended.

        The callbacks get (offset, data), gapless and in order. None: `should_stop` said so, and the step
        goes on. After a ChannelError call again with the offsets reached. `on_contact` is called whenever the
        supervisor says something, every half second at least. `grace_s` is between TERM and KILL when the
        step's time limit ends it.
        """
        environment = spec.environment_file()
        check_size = "-" if spec.check is None else str(len(spec.check))
        arguments = (
            spec.key, str(spec.token), str(spec.timeout_s), _ticks(grace_s),
            str(stdout_offset), str(stderr_offset), str(len(spec.run)), str(len(environment)), check_size,
            *spec.body_interpreter, *spec.checker,
        )  # fmt: skip
        stdout = _Offset(stdout_offset, on_stdout)
        stderr = _Offset(stderr_offset, on_stderr)
        reply = self._call(
            ("run", *arguments),
            spec.run + environment + (spec.check or b"") + b"#end\n",
            stdout.take,
            stderr.take,
            should_stop,
            on_contact,
            deadline_s=spec.timeout_s + grace_s + _SLACK_S,
        )
        if reply is None:
            return None
        outcome = replies.step_outcome(reply)
        if (outcome.stdout_size, outcome.stderr_size) != (stdout.at, stderr.at):
            raise ChannelError(
                f"{self._endpoint}: output of step {spec.key} is incomplete: "
                f"{stdout.at} and {stderr.at} bytes came, "
                f"{outcome.stdout_size} and {outcome.stderr_size} were sent"
            )
        return outcome

    def cancel(self, key: str, token: int, grace_s: float = _GRACE_S) -> CancelProof:
        """End a step for certain: TERM, CONT, `grace_s`, KILL, and proof that nothing of it is left.

        A key that never started is marked, so that a late start does nothing.
        """
        validate_key(key)
        validate_token(token)
        return replies.cancel_proof(
            self._ask("cancel", key, str(token), _ticks(grace_s), deadline_s=grace_s + _SLACK_S)
        )

    def quit(self, run: str, token: int, grace_s: float = _GRACE_S) -> None:
        """End whatever steps whose key is `<run>.<...>` have left running.

        Raises Unproven when something may still run.
        """
        validate_key(run)
        validate_token(token)
        self._ask("quit", run, str(token), _ticks(grace_s), deadline_s=grace_s + _SLACK_S)

    def raise_token(self, token: int, grace_s: float = _GRACE_S) -> None:
        """Make `token` the lowest the machine accepts, and end what lower ones left running.

        Raises TokenRefused when a higher one has been seen, Unproven when something may still run.
        """
        validate_token(token)
        self._ask("token", str(token), _ticks(grace_s), deadline_s=grace_s + 10 * _SLACK_S)

    def facts(self) -> MachineFacts:
        """Who and what the machine is, in one exec."""
        text = bytearray()
        self._call(("facts",), b"", text.extend, _ignore, deadline_s=_SLACK_S)
        return replies.machine_facts(bytes(text), self._endpoint)

    def output(self, key: str) -> bytes:
        """What the step wrote to the file that its BRINGUP_OUTPUT names: at most 64 KiB.

        Raises SupervisorError of class validation when it is more.
        """
        validate_key(key)
        data = bytearray()
        self._call(("output", key), b"", data.extend, _ignore, deadline_s=_SLACK_S)
        return bytes(data)

    def purge(self) -> None:
        """Remove the records and output of every step that has ended. The token stays."""
        self._ask("purge", deadline_s=_SLACK_S)

    @property
    def _endpoint(self) -> str:
        return self._connection.target.endpoint

    def _ask(self, *arguments: str, deadline_s: float) -> dict[str, str]:
        reply = self._call(arguments, b"", _ignore, _ignore, deadline_s=deadline_s)
        assert reply is not None, "nothing asked the call to stop"
        return reply

    def _call(
        self,
        arguments: tuple[str, ...],
        stdin: bytes,
        on_stdout: Callable[[bytes], object],
        on_stderr: Callable[[bytes], object],
        should_stop: Callable[[], bool] = lambda: False,
        on_contact: Callable[[], None] = lambda: None,
        *,
        deadline_s: float,
    ) -> dict[str, str] | None:
        """One exec; only when the supervisor is not there, install it and try once more."""
        for installed in (False, True):
            nonce = secrets.token_hex(8)
            stdout, stderr = FrameReader(nonce), FrameReader(nonce, on_contact)
            status = self._connection.stream(
                self._layout.call(nonce, *arguments),
                stdin,
                lambda data, reader=stdout: on_stdout(reader.feed(data)),  # type: ignore[misc]
                lambda data, reader=stderr: on_stderr(reader.feed(data)),  # type: ignore[misc]
                should_stop,
                idle_s=_IDLE_S if arguments[0] == "run" else None,
                deadline_s=deadline_s,
            )
            if status is None:
                return None
            on_stdout(stdout.rest())
            on_stderr(stderr.rest())
            if stderr.frames:
                return replies.parse(stderr.frames[-1], arguments, self._endpoint)
            if installed or status not in _NOT_THERE:
                raise self._no_answer(status, stderr.noise)
            self._install()
        raise AssertionError("unreachable")

    def _no_answer(self, status: int, said: str) -> Exception:
        if status == 0 or not self._connection.alive:
            return ChannelError(f"{self._endpoint}: the supervisor ended without an answer")
        text = f"{self._endpoint}: the supervisor ended with status {status}: {said or 'it said nothing'}"
        return SupervisorError(text, classify(said))

    def _install(self) -> None:
        result = self._connection.exec(self._layout.install(), script())
        if result.exit_status != 0:
            said = result.stderr.decode("utf-8", "replace").strip()
            raise SupervisorError(
                f"{self._endpoint}: installing the supervisor as {self._layout.path} failed: {said}",
                classify(said),
            )


class _Offset:
    """Counts what is handed on."""

    def __init__(self, at: int, sink: Callable[[int, bytes], None]) -> None:
        self.at = at
        self._sink = sink

    def take(self, data: bytes) -> None:
        if data:
            begin, self.at = self.at, self.at + len(data)
            self._sink(begin, data)


def _ticks(seconds: float) -> str:
    return str(max(0, round(seconds * _TICKS_PER_S)))


def _ignore(_data: bytes) -> None:
    return None
