"""Runs plan steps on a real sandbox machine over ssh, as simply as can be: no supervisor, no workflow."""

import json
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from profiles.plan import PlanStep

_ENVIRONMENT = "env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8"


def sandbox(site: Path, *arguments: str) -> dict[str, list[dict[str, str]]]:
    """Runs the sandbox provider's command line and reads its answer."""
    command = [sys.executable, "-m", "providers.sandbox", str(site), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    answer: dict[str, list[dict[str, str]]] = json.loads(done.stdout)
    return answer


@dataclass(frozen=True)
class Machine:
    """A machine that answers ssh as root."""

    name: str
    address: str
    key_file: str

    def shell(self, text: str, interpreter: str = "/bin/sh") -> subprocess.CompletedProcess[str]:
        """Runs text as a file, with the environment of a step and nothing on standard input."""
        options = [
            "-o",
            "StrictHostKeyChecking=no",
            "-o",
            "UserKnownHostsFile=/dev/null",
            "-o",
            "LogLevel=ERROR",
        ]
        run = f"{_ENVIRONMENT} {shlex.quote(interpreter)} $b </dev/null; s=$?; rm -f $b; exit $s"
        command = [
            "ssh",
            *options,
            "-i",
            self.key_file,
            f"root@{self.address}",
            f"b=$(mktemp /root/body.XXXXXX) && cat > $b || exit 255; {run}",
        ]
        return subprocess.run(command, input=text, capture_output=True, text=True, timeout=60, check=False)

    def done(self, step: PlanStep) -> bool:
        """Whether the step's check says that there is nothing left to do."""
        assert step.check is not None, f"{step.name} has no check"
        checked = self.shell(step.check)
        assert checked.returncode != 255, checked.stderr
        return checked.returncode == 0

    def apply(self, step: PlanStep) -> str:
        """Runs the step's body and returns what it printed."""
        ran = self.shell(step.run, step.interpreter or "/bin/sh")
        assert ran.returncode == 0, f"{step.name}: {ran.stdout}{ran.stderr}"
        return ran.stdout
