"""The `bringup dev` that the demo runs on: started, waited for, stopped through its own stop."""

import json
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from cli.connection import Connection
from cli.dev.process import tied
from cli.errors import CliError, ExitCode

_LOOK = 0.1  # seconds between two looks for the ready file
_STOP_SECONDS = 30.0
# Its own progress begins with a clock; the addresses that follow are for those who started it themselves.
_PROGRESS = re.compile(r"\d\d:\d\d:\d\d  |\s+\| ")


class DevChild:
    """One `bringup dev` on one data directory. What it reports is handed to `say`, line by line."""

    def __init__(self, data_dir: Path, options: Sequence[str], say: Callable[[str], None]) -> None:
        self._ready_file = data_dir / "ready.json"
        self._say = say
        self._kept: list[str] = []
        self._started = time.time()
        # In a session of its own: a Ctrl-C of the terminal reaches the demo, which then decides.
        self._process = subprocess.Popen(
            tied(
                [sys.executable, "-m", "cli.main", "dev", "--data-dir", str(data_dir), *options],
                signal.SIGTERM,
            ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            text=True,
            errors="replace",
        )
        self._reader = threading.Thread(target=self._relay, name="dev output", daemon=True)
        self._reader.start()

    def wait_until_ready(self, seconds: float) -> dict[str, str]:
        """What the ready file says once everything answers. Raises CliError when it ends or takes longer."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                self._reader.join(timeout=2)
                for line in self._kept:
                    self._say(line)
                raise CliError("bringup dev did not start; see above", ExitCode.FAILED)
            found = self._ready()
            if found is not None:
                return found
            time.sleep(_LOOK)
        raise CliError(f"bringup dev was not ready within {seconds:g} s; see above", ExitCode.FAILED)

    def connection(self, ready: dict[str, str]) -> Connection:
        """How its API is reached."""
        return Connection(ready["api"], ready["token"], ready["tenant"], str(self._ready_file))

    def wait(self) -> int:
        """Blocks until it ends by itself; returns its exit status."""
        return self._process.wait()

    def stop(self) -> int:
        """Ends it as Ctrl-C would and returns its exit status; a second Ctrl-C meanwhile is passed on."""
        self._signal(signal.SIGINT)
        while True:
            try:
                status = self._process.wait(_STOP_SECONDS)
            except KeyboardInterrupt:
                self._signal(signal.SIGINT)
            except subprocess.TimeoutExpired:
                self._say(f"bringup dev has not stopped within {_STOP_SECONDS:g} s; ending it")
                self._process.kill()
            else:
                self._reader.join(timeout=2)
                return status

    def _signal(self, number: signal.Signals) -> None:
        if self._process.poll() is None:
            self._process.send_signal(number)

    def _ready(self) -> dict[str, str] | None:
        """Only a file of this very run counts: one that a killed run left names other processes."""
        try:
            status = self._ready_file.stat()
            found = json.loads(self._ready_file.read_text())
        except (OSError, ValueError):
            return None
        return dict(found) if status.st_mtime >= self._started else None

    def _relay(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if _PROGRESS.match(line):
                self._say(line.rstrip())
            else:
                self._kept.append(line.rstrip())
