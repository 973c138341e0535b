"""What a site keeps in its directory: its record, its machines' folders, its client key."""

import hashlib
import re
from dataclasses import dataclass
from functools import cached_property
from ipaddress import IPv4Network
from pathlib import Path

from providers.base import ProviderError
from providers.sandbox import cgroups, network
from providers.sandbox.host import CommandError, command
from providers.sandbox.records import read_json, write_json

NAME_PATTERN = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")
_FIRST_NUMBER = 2  # of the addresses in the range; 1 is the bridge


@dataclass(frozen=True)
class SiteLayout:
    """Paths and names of one site.

    What must not clash on one host (bridge, interfaces, cgroup folder) is named after the directory's path,
    so that two sites never meet. Methods raise CommandError for what a caller can set right.
    """

    directory: Path

    @property
    def lock(self) -> Path:
        """Held while machines come or go, or while the site opens or closes."""
        return self.directory / "lock"

    @property
    def machines(self) -> Path:
        """The folder of the machines' folders."""
        return self.directory / "machines"

    @property
    def client_key(self) -> Path:
        """The private key that logs in on every machine; the public one lies beside it."""
        return self.directory / "ssh/id_ed25519"

    @property
    def bridge(self) -> str:
        """The name of the site's bridge."""
        return f"bu{self._digest('')[:10]}"

    def port(self, name: str) -> str:
        """Return the name of the host's end of a machine's link (15 characters at most)."""
        return f"bv{self._digest(name)[:12]}"

    @cached_property
    def cgroup(self) -> Path:
        """The site's folder in the host's cgroup2 tree."""
        root = cgroups.cgroup2_root()
        if root is None:
            raise CommandError("this host has no cgroup2 tree: mount -t cgroup2 cgroup2 /sys/fs/cgroup")
        return root / f"bringup-{self._digest('')[:10]}"

    def names(self) -> list[str]:
        """Return the machines' names; numbers in them sort as numbers."""
        if not self.machines.is_dir():
            return []
        return sorted((path.name for path in self.machines.iterdir() if is_name(path.name)), key=_natural)

    def folder(self, name: str) -> Path:
        """Return an existing machine's folder; raises ProviderError if there is no such machine."""
        if not is_name(name) or not (self.machines / name).is_dir():
            raise ProviderError(f"sandbox://{name}", f"there is no such machine in {self.directory}")
        return self.machines / name

    def gpus(self, name: str) -> int:
        """Return how many simulated GPUs a machine was made with."""
        number = read_json(self.machines / name / "machine.json").get("gpus", 0)
        assert isinstance(number, int)
        return number

    def subnet(self) -> IPv4Network:
        """Return the site's address range."""
        return IPv4Network(str(self._record()["subnet"]))

    def address(self, name: str) -> str:
        """Return a machine's address."""
        return str(self.subnet()[self._number(name)])

    def free_number(self) -> int:
        """Return the lowest place in the address range that no machine has."""
        taken = {self._number(name) for name in self.names()}
        last = self.subnet().num_addresses - 2
        free = next((number for number in range(_FIRST_NUMBER, last + 1) if number not in taken), None)
        if free is None:
            raise CommandError("the site's address range is full")
        return free

    def masks(self) -> list[Path]:
        """Return what machines of this site must not see, as far as the site has been told."""
        recorded = self._record().get("masks", [])
        assert isinstance(recorded, list)
        return [self.directory, *(Path(str(path)) for path in recorded)]

    def claim(self, masks: list[Path]) -> IPv4Network:
        """Make sure that the site has a range that nothing else on this host uses; remember further masks."""
        used = network.networks_in_use(except_device=self.bridge)
        if (self.directory / "site.json").exists():
            subnet = self.subnet()
            clash = next((network for network in used if network.overlaps(subnet)), None)
            if clash:
                raise CommandError(
                    f"its address range {subnet} is in use on this host now ({clash}): free it, "
                    f"or remove {self.directory} to start a new site"
                )
        else:
            chosen = network.choose_subnet(str(self.directory), used)
            if chosen is None:
                raise CommandError("no free address range is left in 10.64.0.0/10")
            subnet = chosen
            self._write_record(subnet, [])
        if not set(masks) <= set(self.masks()):
            self._write_record(subnet, sorted({*masks, *self.masks()} - {self.directory}))
        return subnet

    def make_client_key(self) -> None:
        """Make the site's key pair, unless there is one."""
        public = self.client_key.with_suffix(".pub")
        if public.exists():
            return
        self.client_key.parent.mkdir(mode=0o700, exist_ok=True)
        self.client_key.unlink(missing_ok=True)
        words = ("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "bringup sandbox", "-f")
        command(*words, str(self.client_key))

    def _record(self) -> dict[str, object]:
        try:
            return read_json(self.directory / "site.json")
        except FileNotFoundError as error:
            raise CommandError("this is not a site yet; open it first") from error

    def _write_record(self, subnet: IPv4Network, masks: list[Path]) -> None:
        record = {
            "subnet": str(subnet),
            "masks": [str(path) for path in masks],
            # For people who look; derived anew each time.
            "bridge": self.bridge,
            "cgroup": str(self.cgroup),
        }
        write_json(self.directory / "site.json", record)

    def _number(self, name: str) -> int:
        number = read_json(self.machines / name / "machine.json")["number"]
        assert isinstance(number, int)
        return number

    def _digest(self, name: str) -> str:
        return hashlib.sha256(f"{self.directory}\n{name}".encode()).hexdigest()


def is_name(text: str) -> bool:
    """Say whether the text can be a machine's name (and so is no draft or leftover among the folders)."""
    return NAME_PATTERN.fullmatch(text) is not None


def _natural(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name) if part]
