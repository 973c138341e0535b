"""A site: one directory, and the machines on one private bridge that it describes."""

import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

from providers.base import Guard, PowerState, ProviderError, unguarded
from providers.sandbox import cgroups, disk, features, network
from providers.sandbox.gpus import library
from providers.sandbox.gpus.machine_gpus import CONFIGURATION, MOST, configuration
from providers.sandbox.host import CommandError, locked
from providers.sandbox.layout import NAME_PATTERN, SiteLayout, is_name
from providers.sandbox.machine import SandboxMachine
from providers.sandbox.power import PowerSwitch
from providers.sandbox.records import read_json, write_json

#: Colon-separated absolute paths that machines must not see, beside the site and the home directories.
MASK_VARIABLE = "BRINGUP_SANDBOX_MASK"
_WORKERS = 16


class SandboxSite:
    """The machines of one directory.

    Safe to use from several threads and processes at once. Every method raises ProviderError.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory.resolve()
        self._layout = SiteLayout(self.directory)

    # The site

    def open(self) -> None:
        """Prepare the host: bridge, cgroup folder, address range, key pair. May be repeated at any time.

        What BRINGUP_SANDBOX_MASK names is remembered, so that later starts hide it as well.
        """
        with self._errors():
            disk.check_path(self.directory)
            self._layout.machines.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.directory.chmod(0o700)
            with locked(self._layout.lock):
                subnet = self._layout.claim(_masks_of_environment())
                self._layout.make_client_key()
                self._layout.cgroup.mkdir(exist_ok=True)
                network.ensure_bridge(self._layout.bridge, subnet)
                for name in self._layout.names():
                    network.attach(self._layout.bridge, self._layout.port(name))

    def close(self) -> None:
        """Switch every machine off and take the bridge and the cgroup folder away; the disks stay.

        Works without the directory too, for a site whose directory was deleted under its running machines.
        """
        with self._errors(), ExitStack() as stack:
            if self.directory.is_dir():
                stack.enter_context(locked(self._layout.lock))
            # The bridge first: without it no machine starts any more.
            network.remove_link(self._layout.bridge)
            with ThreadPoolExecutor(_WORKERS) as pool:
                list(pool.map(self.power_off, self._layout.names()))
            cgroups.end(self._layout.cgroup)

    # Machines

    def machines(self) -> list[SandboxMachine]:
        """Return all machines, by name (numbers in names count as numbers)."""
        return [self.machine(name) for name in self._layout.names()]

    def machine(self, name: str) -> SandboxMachine:
        """Return one machine as it is now."""
        folder = self._layout.folder(name)
        boot_id = folder / "boot_id"
        with self._errors(name):
            return SandboxMachine(
                name=name,
                address=self._layout.address(name),
                host_key=(folder / "host_key.pub").read_text().strip(),
                key_file=self._layout.client_key,
                boot_id=boot_id.read_text().strip() if boot_id.exists() else None,
                gpus=self._layout.gpus(name),
            )

    def create(self, name: str, gpus: int = 0) -> SandboxMachine:
        """Make a new machine, switched off. The site must have been opened once.

        With ``gpus`` it answers as one with that many: a simulated driver's library is part of its disk, now
        and after each reimage.
        """
        if not is_name(name):
            raise ProviderError(f"sandbox://{name}", f"a machine's name must match {NAME_PATTERN.pattern}")
        if not 0 <= gpus <= MOST:
            raise ProviderError(f"sandbox://{name}", f"a machine has 0 to {MOST} GPUs, not {gpus}")
        with self._errors(name), locked(self._layout.lock):
            if name in self._layout.names():
                raise CommandError("a machine of that name exists already")
            number = self._layout.free_number()
            # Built aside: a folder with its final name is a complete machine. Dots cannot be in a name.
            draft = self._layout.machines / f"{name}.new"
            shutil.rmtree(draft, ignore_errors=True)
            draft.mkdir(mode=0o700)
            write_json(draft / "machine.json", {"name": name, "number": number, "gpus": gpus})
            self._write_disk(draft, name, str(self._layout.subnet()[number]))
            draft.rename(self._layout.machines / name)
        return self.machine(name)

    def destroy(self, name: str) -> None:
        """Switch a machine off and delete it with its disk."""
        folder, switch = self._layout.folder(name), self._switch(name)
        with self._errors(name), locked(self._layout.lock), switch.control():
            switch.stop_now()
            # Renamed first: a half deleted machine must not be seen as one.
            trash = folder.with_name(f"{name}.old")
            shutil.rmtree(trash, ignore_errors=True)
            folder.rename(trash)
            shutil.rmtree(trash)

    # Power

    def power_on(self, name: str) -> None:
        """Switch a machine on; returns once it boots, some 50 ms before it answers SSH.

        One that runs already is left alone, unless the process that brings it back from a reboot was killed:
        then it is power cycled.
        """
        with self._power(name) as switch:
            self._start(name, switch)

    def power_off(self, name: str) -> None:
        """Switch a machine off, hard; on return no process, mount, interface or cgroup of it is left."""
        with self._power(name) as switch:
            switch.stop_now()

    def reboot(self, name: str) -> None:
        """Reset a machine, hard; one that is off is switched on."""
        with self._power(name) as switch:
            switch.stop_now()
            self._start(name, switch)

    def power_state(self, name: str) -> PowerState:
        """Say whether a machine is on; unknown while that is being changed."""
        self._layout.folder(name)
        with self._errors(name):
            return self._switch(name).state()

    def reimage(self, name: str, guard: Guard = unguarded) -> str:
        """Give a machine an empty disk and a new host key, and switch it on; returns the public key."""
        with self._power(name) as switch:
            guard()
            # Left behind by a crash half way, the mark makes the next start do it again.
            (switch.folder / "reimaging").touch()
            switch.stop_now()
            self._start(name, switch)
            return (switch.folder / "host_key.pub").read_text().strip()

    def log_tail(self, name: str) -> str:
        """Return the last lines of a machine's boot log."""
        return self._switch(name).log_tail()

    # Parts

    def _start(self, name: str, switch: PowerSwitch) -> None:
        folder, bridge = switch.folder, self._layout.bridge
        if not network.exists(bridge):
            raise CommandError("the site is closed; open it first")
        if switch.runs_now():
            return
        switch.stop_now()
        address, subnet = self._layout.address(name), self._layout.subnet()
        if (folder / "reimaging").exists():
            self._write_disk(folder, name, address)
            (folder / "reimaging").unlink()
        disk.hide_host(folder / "up", [*self._layout.masks(), *_masks_of_environment()])
        switch.start_now(
            [name, address, str(folder), switch.port],
            {
                "BRIDGE": bridge,
                "GATEWAY": str(subnet[1]),
                "PREFIX": str(subnet.prefixlen),
                "TIME_NAMESPACE": "yes" if features.has_time_namespace() else "no",
                "SSHD_OPTIONS": features.sshd_options(),
            },
        )

    def _write_disk(self, folder: Path, name: str, address: str) -> None:
        for part in ("up", "wk"):
            shutil.rmtree(folder / part, ignore_errors=True)
        (folder / "wk").mkdir()
        (folder / "root").mkdir(exist_ok=True)
        key = self._layout.client_key.with_suffix(".pub").read_text().strip()
        host_key = disk.seed(folder / "up", name, address, key)
        gpus = read_json(folder / "machine.json").get("gpus", 0)
        if isinstance(gpus, int) and gpus > 0:
            self._write_gpus(folder / "up", name, gpus)
        (folder / "host_key.pub").write_text(f"{host_key}\n")

    def _write_gpus(self, upper: Path, name: str, gpus: int) -> None:
        built = library.build(self.directory / "gpus")
        disk.put(upper, library.folder() / library.NAME, built.read_bytes())
        disk.put(upper, Path(CONFIGURATION), configuration(str(self.directory), name, gpus).encode())

    def _switch(self, name: str) -> PowerSwitch:
        layout = self._layout
        return PowerSwitch(folder=layout.machines / name, group=layout.cgroup / name, port=layout.port(name))

    @contextmanager
    def _power(self, name: str) -> Iterator[PowerSwitch]:
        self._layout.folder(name)
        with self._errors(name):
            switch = self._switch(name)
            with switch.control():
                yield switch

    @contextmanager
    def _errors(self, name: str | None = None) -> Iterator[None]:
        """Turn what goes wrong on the host into a ProviderError with the address."""
        address = f"sandbox://{name}" if name else f"sandbox site {self.directory}"
        try:
            yield
        except CommandError as error:
            raise ProviderError(address, str(error)) from error
        except OSError as error:
            text = f"{error}; sandbox machines need root, and room on the disk"
            raise ProviderError(address, text) from error


def _masks_of_environment() -> list[Path]:
    masks = [Path(text) for text in os.environ.get(MASK_VARIABLE, "").split(":") if text]
    for path in masks:
        if not path.is_absolute() or path.resolve() == Path("/"):
            raise CommandError(f"{MASK_VARIABLE} has '{path}', which is not an absolute path below /")
    return masks
