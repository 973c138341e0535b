"""pyinfra: its command, with one `server.shell` operation a step.

`server.shell` takes the same line of shell as everybody; pyinfra's own `files.*` operations would read
facts first and so cost it more. All machines are worked on at once (`--parallel` as many as there are; the
default is 20 for each core), without a prompt (`-y`), and no machine waits for another between two
operations (`--no-wait`; waiting, or fewer at once, was tried and was no faster). Host keys are checked
against a file of this run.
"""

from collections.abc import Sequence
from pathlib import Path

from bench.fanout.commands import CommandPeer
from bench.fanout.environments import environment, pinned_version
from bench.fanout.recipe import RECIPE
from bench.hosts import Host, write_known_hosts


class Pyinfra(CommandPeer):
    """See the module."""

    name = "pyinfra"
    version = pinned_version("pyinfra", "pyinfra")

    def __init__(self, folder: Path, cache: Path) -> None:
        super().__init__(folder)
        self._program = environment(cache, "pyinfra") / "bin" / "pyinfra"
        self._count = 0

    def write(self, hosts: Sequence[Host]) -> None:
        self._count = len(hosts)
        known_hosts = write_known_hosts(self.folder / "known_hosts", hosts)
        settings = {
            "ssh_user": "root",
            "ssh_key": str(hosts[0].key_file),
            "ssh_known_hosts_file": str(known_hosts),
            "ssh_strict_host_key_checking": "yes",
        }
        machines = [host.address for host in hosts]
        (self.folder / "inventory.py").write_text(f"machines = ({machines!r}, {settings!r})\n")
        operations = [
            f"server.shell(name={step.name!r}, commands=[{step.line!r}])\n"  # one operation a step
            for step in RECIPE
        ]
        (self.folder / "deploy.py").write_text(
            f"from pyinfra.operations import server\n{''.join(operations)}"
        )

    def command(self) -> list[str]:
        parallel = ["--parallel", str(self._count)]
        return [str(self._program), "-y", "--no-wait", *parallel, "inventory.py", "deploy.py"]
