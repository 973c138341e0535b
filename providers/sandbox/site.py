"""A site: one directory, and the machines on one private bridge that it describes."""

import hashlib
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from ipaddress import IPv4Network
from pathlib import Path

from providers.base import PowerState, ProviderError
from providers.sandbox import cgroups, disk, network
from providers.sandbox.host import CommandError, command, locked
from providers.sandbox.machine import SandboxMachine
from providers.sandbox.power import PowerSwitch
from providers.sandbox.records import read_json, write_json

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")
#: Colon-separated absolute paths that machines must not see, beside the site and the home directories.
MASK_VARIABLE = "BRINGUP_SANDBOX_MASK"
_FIRST_NUMBER = 2  # of the addresses in the range; 1 is the bridge


class SandboxSite:
    """The machines of one directory.

    Safe to use from several threads and processes at once. Every method raises ProviderError. What must not clash
    on one host (bridge, interfaces, cgroup folder) is named after the directory's path, so two sites never meet.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory.resolve()
        digest = self._digest("")
        self.bridge = f"bu{digest[:10]}"
        self._machines = self.directory / "machines"

    # The site

    def open(self) -> None:
        """Prepare the host: bridge, cgroup folder, address range, key pair. May be repeated at any time."""
        with self._errors():
            if any(character in str(self.directory) for character in ",:\\\n"):
                raise CommandError("the path must not contain a comma, colon, backslash or line end")
            self._machines.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.directory.chmod(0o700)
            with locked(self.directory / "lock"):
                subnet = self._claim_subnet()
                self._make_client_key()
                self._cgroup.mkdir(exist_ok=True)
                network.ensure_bridge(self.bridge, subnet)
                for name in self._names():
                    network.attach(self.bridge, self._switch(name).port)

    def close(self) -> None:
        """Switch every machine off and take the bridge and the cgroup folder away; the disks stay."""
        with self._errors():
            if not self.directory.is_dir():
                return
            with locked(self.directory / "lock"):
                for name in self._names():
                    self.power_off(name)
                if not cgroups.remove(self._cgroup):
                    raise CommandError(f"the cgroup {self._cgroup} cannot be removed")
                network.remove_link(self.bridge)

    # Machines

    def machines(self) -> list[SandboxMachine]:
        """Return all machines, by name (numbers in names count as numbers)."""
        return [self.machine(name) for name in self._names()]

    def machine(self, name: str) -> SandboxMachine:
        """Return one machine as it is now."""
        folder = self._folder(name)
        with self._errors(name):
            return SandboxMachine(
                name=name,
                address=self._address(name),
                host_key=(folder / "host_key.pub").read_text().strip(),
                key_file=self.directory / "ssh/id_ed25519",
                boot_id=self._boot_id(folder),
            )

    def create(self, name: str) -> SandboxMachine:
        """Make a new machine, switched off. The site must have been opened once."""
        if not _NAME.fullmatch(name):
            raise ProviderError(f"sandbox://{name}", f"a machine's name must match {_NAME.pattern}")
        with self._errors(name), locked(self.directory / "lock"):
            if name in self._names():
                raise CommandError("a machine of that name exists already")
            folder = self._machines / name
            # Built aside: a folder with its final name is a complete machine. Dots cannot be in a name.
            draft = self._machines / f"{name}.new"
            shutil.rmtree(draft, ignore_errors=True)
            draft.mkdir(mode=0o700)
            number = self._free_number()
            write_json(draft / "machine.json", {"name": name, "number": number})
            self._write_disk(draft, name, str(self._subnet()[number]))
            draft.rename(folder)
        return self.machine(name)

    def destroy(self, name: str) -> None:
        """Switch a machine off and delete it with its disk."""
        folder = self._folder(name)
        with self._errors(name), locked(self.directory / "lock"), self._switch(name).control():
            self._switch(name).stop_now()
            # Renamed first: a half deleted machine must not be seen as one.
            trash = self._machines / f"{name}.old"
            shutil.rmtree(trash, ignore_errors=True)
            folder.rename(trash)
            shutil.rmtree(trash)

    # Power

    def power_on(self, name: str) -> None:
        """Switch a machine on; returns once it boots, some 50 ms before it answers SSH."""
        self._folder(name)
        with self._errors(name), self._switch(name).control():
            self._start(name)

    def power_off(self, name: str) -> None:
        """Switch a machine off, hard; on return no process, mount, interface or cgroup of it is left."""
        self._folder(name)
        with self._errors(name), self._switch(name).control():
            self._switch(name).stop_now()

    def reboot(self, name: str) -> None:
        """Reset a machine, hard; one that is off is switched on."""
        self._folder(name)
        with self._errors(name), self._switch(name).control():
            self._switch(name).stop_now()
            self._start(name)

    def power_state(self, name: str) -> PowerState:
        """Say whether a machine is on; unknown while that is being changed."""
        self._folder(name)
        with self._errors(name):
            return self._switch(name).state()

    def reimage(self, name: str) -> str:
        """Give a machine an empty disk and a new host key, and switch it on; returns the public key."""
        folder = self._folder(name)
        with self._errors(name), self._switch(name).control():
            # Left behind by a crash half way, the mark makes the next start do it again.
            (folder / "reimaging").touch()
            self._switch(name).stop_now()
            self._start(name)
            return (folder / "host_key.pub").read_text().strip()

    def log_tail(self, name: str) -> str:
        """Return the last lines of a machine's boot log."""
        return self._switch(name).log_tail()

    # Parts

    def _start(self, name: str) -> None:
        folder, switch = self._folder(name), self._switch(name)
        if not Path(f"/sys/class/net/{self.bridge}").exists():
            raise CommandError("the site is closed; open it first")
        if switch.runs_now():
            return
        switch.stop_now()
        if (folder / "reimaging").exists():
            self._write_disk(folder, name, self._address(name))
            (folder / "reimaging").unlink()
        for path in self._masks():
            disk.hide(folder / "up", path)
        subnet = self._subnet()
        switch.start_now(
            [name, self._address(name), str(folder), switch.port],
            {
                "BRIDGE": self.bridge,
                "GATEWAY": str(subnet[1]),
                "PREFIX": str(subnet.prefixlen),
                "TIME_NAMESPACE": "yes" if self._has_time_namespace else "no",
                "SSHD_OPTIONS": self._sshd_options,
            },
        )

    def _write_disk(self, folder: Path, name: str, address: str) -> None:
        for part in ("up", "wk"):
            shutil.rmtree(folder / part, ignore_errors=True)
        (folder / "wk").mkdir()
        (folder / "root").mkdir(exist_ok=True)
        key = (self.directory / "ssh/id_ed25519.pub").read_text().strip()
        host_key = disk.seed(folder / "up", name, address, key)
        (folder / "host_key.pub").write_text(f"{host_key}\n")

    def _masks(self) -> list[Path]:
        extra = [Path(text) for text in os.environ.get(MASK_VARIABLE, "").split(":") if text]
        for path in extra:
            if not path.is_absolute() or path.resolve() == Path("/"):
                raise CommandError(f"{MASK_VARIABLE} has '{path}', which is not an absolute path below /")
        return [self.directory, *extra]

    def _claim_subnet(self) -> IPv4Network:
        record = self.directory / "site.json"
        used = network.networks_in_use(except_device=self.bridge)
        if record.exists():
            subnet = self._subnet()
            clash = next((network for network in used if network.overlaps(subnet)), None)
            if clash:
                raise CommandError(
                    f"its address range {subnet} is in use on this host now ({clash}): "
                    f"free it, or remove {self.directory} to start a new site"
                )
            return subnet
        chosen = network.choose_subnet(str(self.directory), used)
        if chosen is None:
            raise CommandError("no free address range is left in 10.64.0.0/10")
        names = {"bridge": self.bridge, "subnet": str(chosen), "cgroup": str(self._cgroup)}
        write_json(record, names)
        return chosen

    def _make_client_key(self) -> None:
        folder = self.directory / "ssh"
        if (folder / "id_ed25519.pub").exists():
            return
        folder.mkdir(mode=0o700, exist_ok=True)
        (folder / "id_ed25519").unlink(missing_ok=True)
        path = str(folder / "id_ed25519")
        command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "bringup sandbox", "-f", path)

    def _subnet(self) -> IPv4Network:
        try:
            return IPv4Network(str(read_json(self.directory / "site.json")["subnet"]))
        except FileNotFoundError as error:
            raise CommandError("this is not a site yet; open it first") from error

    def _address(self, name: str) -> str:
        return str(self._subnet()[self._number(name)])

    def _number(self, name: str) -> int:
        number = read_json(self._machines / name / "machine.json")["number"]
        assert isinstance(number, int)
        return number

    def _free_number(self) -> int:
        taken = {self._number(name) for name in self._names()}
        last = self._subnet().num_addresses - 2
        free = next((number for number in range(_FIRST_NUMBER, last + 1) if number not in taken), None)
        if free is None:
            raise CommandError("the site's address range is full")
        return free

    def _names(self) -> list[str]:
        if not self._machines.is_dir():
            return []
        names = [path.name for path in self._machines.iterdir() if _NAME.fullmatch(path.name)]
        return sorted(names, key=_natural)

    def _folder(self, name: str) -> Path:
        if not _NAME.fullmatch(name) or not (self._machines / name).is_dir():
            raise ProviderError(f"sandbox://{name}", f"there is no such machine in {self.directory}")
        return self._machines / name

    def _switch(self, name: str) -> PowerSwitch:
        port = f"bv{self._digest(name)[:12]}"
        return PowerSwitch(folder=self._machines / name, group=self._cgroup / name, port=port)

    @staticmethod
    def _boot_id(folder: Path) -> str | None:
        try:
            return (folder / "boot_id").read_text().strip()
        except FileNotFoundError:
            return None

    def _digest(self, name: str) -> str:
        return hashlib.sha256(f"{self.directory}\n{name}".encode()).hexdigest()

    @cached_property
    def _cgroup(self) -> Path:
        root = cgroups.cgroup2_root()
        if root is None:
            raise CommandError(
                "this host has no cgroup2 tree mounted: mount -t cgroup2 cgroup2 /sys/fs/cgroup"
            )
        return root / f"bringup-{self._digest('')[:10]}"

    @cached_property
    def _has_time_namespace(self) -> bool:
        # Needs a right (CAP_SYS_TIME) that containers lack; without it a machine shows the host's uptime.
        try:
            command("unshare", "--time", "--boottime", "-1", "--fork", "true")
        except CommandError:
            return False
        return True

    @cached_property
    def _sshd_options(self) -> str:
        # From 9.8 on sshd shuts out addresses that probe often, which is what waiting for a machine looks like;
        # before, it does not know the option.
        option = "PerSourcePenalties=no"
        key = str(self.directory / "ssh/id_ed25519")
        try:
            command("/usr/sbin/sshd", "-t", "-f", "/dev/null", "-h", key, "-o", option)
        except CommandError:
            return ""
        return f"-o{option}"

    @contextmanager
    def _errors(self, name: str | None = None) -> Iterator[None]:
        """Turn what goes wrong on the host into a ProviderError with the address."""
        address = f"sandbox://{name}" if name else f"sandbox site {self.directory}"
        try:
            yield
        except CommandError as error:
            raise ProviderError(address, str(error)) from error
        except OSError as error:
            raise ProviderError(address, f"{error}; root is needed, and room on the disk") from error


def _natural(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name) if part]
