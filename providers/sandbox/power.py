"""Power of one machine: starting its loop of boots, and ending everything that runs in it."""

import fcntl
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from providers.base import PowerState
from providers.sandbox import cgroups, network
from providers.sandbox.host import COMMAND_PATH, CommandError, locked, try_lock, unlock, wait_until

_RUN = Path(__file__).with_name("run.sh")
_BOOT_SECONDS = 30.0
_STOP_SECONDS = 30.0
_ORDERLY_SECONDS = 1.0
_LOG_LINES = 8


@dataclass(frozen=True)
class PowerSwitch:
    """The switch of one machine.

    Two locks, both files in the machine's folder: ``control`` belongs to whoever is changing the power,
    ``lock`` to the loop of a running machine (run.sh) and to nobody else. A machine can outlive a killed
    loop; the cgroup tells. Methods ending in ``_now`` expect the caller to hold control.
    """

    folder: Path
    group: Path
    port: str

    @contextmanager
    def control(self) -> Iterator[None]:
        """Keep everybody else from changing this machine's power; FileNotFoundError if it is gone."""
        with locked(self.folder / "control"):
            if not self.folder.is_dir():
                raise FileNotFoundError(self.folder)
            yield

    def state(self) -> PowerState:
        """Say whether the machine is on, which includes the moment between two boots."""
        try:
            if cgroups.populated(self.group):
                return PowerState.ON
            control = try_lock(self.folder / "control", fcntl.LOCK_SH)
        except OSError:
            return PowerState.UNKNOWN
        if control is None:
            return PowerState.UNKNOWN
        try:
            return PowerState.OFF if self._loop_ended() else PowerState.ON
        finally:
            unlock(control)

    def runs_now(self) -> bool:
        """Say whether the machine runs with its loop; without it, it would not come back from a reboot."""
        # A loop without a machine is about to boot or about to end; wait for one of both.
        wait_until(lambda: self._loop_ended() or cgroups.populated(self.group), _BOOT_SECONDS)
        return not self._loop_ended()

    def start_now(self, arguments: list[str], environment: dict[str, str]) -> None:
        """Start a stopped machine's loop; returns once its first boot has switched to its own root.

        Raises CommandError with the end of the machine's log.
        """
        for name in ("stop", "booted"):
            (self.folder / name).unlink(missing_ok=True)
        lock = try_lock(self.folder / "lock")
        if lock is None:
            raise CommandError("the machine's lock is held by a process that is not its own")
        try:
            with (self.folder / "log").open("w") as log:
                subprocess.run(
                    ["/usr/bin/setsid", "--fork", "sh", str(_RUN), *arguments],
                    stdin=lock,
                    stdout=log,
                    stderr=log,
                    env={**environment, "GROUP": str(self.group), "PATH": COMMAND_PATH},
                    check=True,
                )
        finally:
            os.close(lock)
        self._await_boot()

    def stop_now(self) -> None:
        """End everything that runs in the machine, and its loop; raises CommandError if that fails."""
        (self.folder / "stop").touch()
        # In order where that goes: every parent is still there to reap, and no zombie is left to the host.
        orderly = self._kill_init() and wait_until(self._is_stopped, _ORDERLY_SECONDS)
        if not orderly and not wait_until(self._kill_all, _STOP_SECONDS):
            raise CommandError(f"processes in {self.group} do not end; look at its cgroup.procs")
        with suppress(FileNotFoundError):
            (self.folder / "go").unlink()
        network.remove_link(self.port)
        if not cgroups.remove(self.group):
            raise CommandError(f"the cgroup {self.group} cannot be removed")

    def _kill_init(self) -> bool:
        """Kill the machine's pid 1, and with it all in its pid namespace; False if it has none."""
        try:
            pid = int((self.folder / "pid1").read_text())
            process = os.pidfd_open(pid)
        except (OSError, ValueError):
            return False
        try:
            # With the process held, its number cannot pass to another between this check and the signal.
            if pid not in cgroups.processes(self.group):
                return False
            signal.pidfd_send_signal(process, signal.SIGKILL)
        except OSError:
            return False
        finally:
            os.close(process)
        return True

    def _kill_all(self) -> bool:
        # Again and again: the loop may be just about to fill the group.
        cgroups.kill(self.group)
        return self._is_stopped()

    def _is_stopped(self) -> bool:
        return self._loop_ended() and not cgroups.populated(self.group)

    def _loop_ended(self) -> bool:
        lock = try_lock(self.folder / "lock", fcntl.LOCK_SH)
        if lock is not None:
            unlock(lock)
        return lock is not None

    def _await_boot(self) -> None:
        booted = self.folder / "booted"

        def settled() -> bool:
            return (booted.exists() and booted.stat().st_size > 0) or self._loop_ended()

        in_time = wait_until(settled, _BOOT_SECONDS)
        if not (booted.exists() and booted.stat().st_size > 0):
            said = self.log_tail()
            self.stop_now()
            raise CommandError(f"the machine did not boot{'' if in_time else ' in time'}: {said}")

    def log_tail(self) -> str:
        """Return the last lines that the loop and the boot wrote."""
        try:
            lines = (self.folder / "log").read_text(errors="replace").splitlines()
        except FileNotFoundError:
            return "no log"
        return " | ".join(lines[-_LOG_LINES:]) or "its log is empty"
