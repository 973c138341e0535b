"""Ansible: ansible-playbook, with one `ansible.builtin.shell` task a step.

The shell module, run by the machine's Python, is what playbooks use for such a line. Nearly all of its time
is that Python starting anew for each task, as it is for every other module; `raw` needs none and is three
to five times faster, but it is Ansible's way to install a Python, not what recipes are made of.

Set for speed, as its users are told to: 50 forks, pipelining (no module file is copied), no fact gathering,
a known interpreter (nothing is probed), and one OpenSSH connection a machine that persists
(ControlPersist). The strategy is the default: `free` and fewer forks were tried and were no faster. Host
keys are checked against a file of this run.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.fanout.commands import CommandPeer
from bench.fanout.environments import environment, pinned_version
from bench.fanout.errors import BenchError
from bench.fanout.recipe import RECIPE
from bench.hosts import Host, write_known_hosts

FORKS = 50
# A machine sees the host's /usr.
_INTERPRETER = Path("/usr/bin/python3")


class Ansible(CommandPeer):
    """See the module."""

    name = "ansible"
    version = pinned_version("ansible", "ansible-core")

    def __init__(self, folder: Path, cache: Path) -> None:
        super().__init__(folder)
        if not _INTERPRETER.exists():
            raise BenchError(f"Ansible needs {_INTERPRETER} on the machines, which this host does not have")
        self._program = environment(cache, "ansible") / "bin" / "ansible-playbook"

    def write(self, hosts: Sequence[Host]) -> None:
        known_hosts = write_known_hosts(self.folder / "known_hosts", hosts)
        options = [
            *("-F", "/dev/null", "-o", "BatchMode=yes"),
            *("-o", "ControlMaster=auto", "-o", "ControlPersist=60s"),
            *("-o", f"UserKnownHostsFile={known_hosts}", "-o", "StrictHostKeyChecking=yes"),
        ]
        (self.folder / "ansible.cfg").write_text(
            "[defaults]\n"
            f"forks = {FORKS}\n"
            "gathering = explicit\n"
            f"interpreter_python = {_INTERPRETER}\n"
            "remote_user = root\n"
            f"private_key_file = {hosts[0].key_file}\n"
            "retry_files_enabled = False\n"
            "[ssh_connection]\n"
            "pipelining = True\n"
            f"control_path_dir = {self.folder}/cp\n"
            f"ssh_args = {' '.join(options)}\n"
        )
        (self.folder / "inventory").write_text("".join(f"{host.address}\n" for host in hosts))
        tasks = [{"name": step.name, "ansible.builtin.shell": {"cmd": step.line}} for step in RECIPE]
        plays = [{"hosts": "all", "gather_facts": False, "tasks": tasks}]
        # JSON is YAML.
        (self.folder / "playbook.yml").write_text(json.dumps(plays, indent=1))

    def command(self) -> list[str]:
        return [str(self._program), "--inventory", "inventory", "playbook.yml"]

    def environment(self) -> Mapping[str, str]:
        return {"ANSIBLE_CONFIG": str(self.folder / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"}
