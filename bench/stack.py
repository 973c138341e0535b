"""A `bringup dev` for a benchmark: as a user runs it, and stopped in order whatever happens."""

import os
import signal
import subprocess
import sys

import httpx

from cli.dev.process import tied
from tests.fixtures.dev_stack import ROOT, DevStack, eventually

_STOP_SECONDS = 120.0  # a hundred machines on a busy host
_REQUEST_SECONDS = 60.0


class BenchStack(DevStack):
    """Settings are the defaults of `bringup dev`, where the tests shorten some.

    It runs in a session of its own: a terminal's Ctrl-C is for the benchmark, which then stops it once and in
    order. When the benchmark is killed, the kernel asks it to stop.
    """

    def start(self, seconds: float = 300.0) -> "BenchStack":
        """Starts it and waits until every machine is ready; AssertionError with its output when it ends."""
        command = [sys.executable, "-m", "cli.main", "dev", f"--data-dir={self.data_dir}"]
        command += [f"--machines={self.machines}", "--api-port=0", "--temporal-port=0", "--ui-port=0"]
        with self.output.open("ab") as output:
            self.process = subprocess.Popen(
                tied([*command, f"--ready-file={self.ready_file}", *self.arguments], signal.SIGINT),
                cwd=ROOT,
                env=os.environ,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        eventually(f"bringup dev is ready: {self.output}", self._is_ready, seconds)
        self._http = httpx.Client(
            base_url=self.ready["api"],
            headers={"Authorization": f"Bearer {self.ready['token']}"},
            timeout=_REQUEST_SECONDS,
        )
        return self

    def close(self) -> None:
        """Stops it with all its machines; does nothing when it was never started."""
        if self.process is None or self.process.poll() is not None:
            return
        self.process.send_signal(signal.SIGINT)
        if self._http is not None:
            self._http.close()
        try:
            self.process.wait(timeout=_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
