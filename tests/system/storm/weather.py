"""What happens in a storm: processes die and freeze, links are cut, machines lose their power."""

import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from providers.sandbox.layout import SiteLayout
from tests.fixtures.dev_stack import DevStack
from tests.system.storm.groups import processes_of, runner_of, step_groups

_ROLES = {"worker": 5, "temporal": 2, "postgres": 2, "api": 1}
_PAUSE = (0.4, 3.0)  # seconds between two faults
# Seconds. A step's activity is given up after ten without a heartbeat, other ones after fifteen.
_FREEZES = [0.2, 0.7, 1.5, 4.0, 11.5, 18.0, 25.0]
_CUTS = [0.5, 2.0, 6.0, 12.0]
# `bringup dev` waits ten seconds after five deaths of a process within a minute: not all the time, please.
_DEATHS_A_MINUTE = 10
# How often something dies just after a cancel or a terminate was taken.
_STRIKE = 0.6
_STRUCK = [("worker", signal.SIGKILL), ("worker", signal.SIGTERM), ("postgres", signal.SIGKILL)]


class Weather:
    """Random faults; what is frozen or cut off is set right again after its time."""

    def __init__(self, stack: DevStack, machines: list[str], chance: random.Random) -> None:
        self._stack = stack
        self._site = SiteLayout(stack.data_dir / "sandbox")
        self._machines = machines
        self._chance = chance
        self._timers: list[threading.Timer] = []
        self._deaths: list[float] = []
        self._over = False
        # Asked from another thread: the order of the others must not hang on it.
        self._strikes = random.Random(chance.random())
        self.faults: list[str] = []

    def blow(self, count: int) -> None:
        """Returns after so many kills and freezes, when all that passes has passed."""
        kinds: dict[Callable[[], str], float] = {
            self._kill: 5,
            self._freeze: 4,
            self._kill_runner: 4,
            self._cut_link: 3,
            self._kill_sshd: 2,
            self._freeze_sshd: 2,
            self._power_cycle: 1.5,
        }
        while self.kills < count:
            # Between choice and deed a process may end by itself: then it was no fault.
            with suppress(OSError, subprocess.SubprocessError):
                if what := self._chance.choices(list(kinds), list(kinds.values()))[0]():
                    self.faults.append(what)
            time.sleep(self._chance.uniform(*_PAUSE))
        self._over = True
        for timer in self._timers:
            timer.join()

    @property
    def kills(self) -> int:
        """How many processes were killed, or frozen for a while, at a moment that chance chose."""
        return sum(fault.startswith(("kill ", "freeze ")) for fault in self.faults)

    def strike(self) -> None:
        """Now and then something dies within the second in which a cancel is on its way to a machine."""
        if self._over or self._strikes.random() > _STRIKE:
            return
        role, number = self._strikes.choice(_STRUCK)
        if (pid := self._stack.ready["pids"].get(role)) is not None:
            self._later(self._strikes.uniform(0.05, 0.9), lambda: _signal([pid], number))
            self.faults.append(f"strike {role}")

    def _role(self) -> tuple[str, int | None]:
        role = self._chance.choices(list(_ROLES), list(_ROLES.values()))[0]
        return role, self._stack.ready["pids"].get(role)

    def _kill(self) -> str:
        now = time.monotonic()
        self._deaths = [death for death in self._deaths if now - death < 60]
        role, pid = self._role()
        if pid is None or len(self._deaths) >= _DEATHS_A_MINUTE:
            return ""
        os.kill(pid, signal.SIGKILL)
        self._deaths.append(now)
        return f"kill {role}"

    def _freeze(self) -> str:
        role, pid = self._role()
        if pid is None:
            return ""
        seconds = self._chance.choice(_FREEZES)
        self._stop_for(seconds, [pid])
        return f"freeze {role}"

    def _kill_runner(self) -> str:
        groups = sorted(step_groups(self._site), key=lambda group: group.key)
        if not groups:
            return ""
        pid = runner_of(self._site, self._chance.choice(groups))
        if pid is None:
            return ""
        os.kill(pid, signal.SIGKILL)
        return "kill a step's supervisor"

    def _cut_link(self) -> str:
        port = self._site.port(self._chance.choice(self._machines))
        _set_link(port, "down")
        self._later(self._chance.choice(_CUTS), lambda: _set_link(port, "up"))
        return "cut a link"

    def _kill_sshd(self) -> str:
        everything = self._chance.random() < 0.5
        pids = self._sshd()
        for pid in pids if everything else pids[1:]:
            os.kill(pid, signal.SIGKILL)
        return "kill sshd" if pids else ""

    def _freeze_sshd(self) -> str:
        pids = self._sshd()
        self._stop_for(self._chance.choice(_FREEZES), pids)
        return "freeze sshd" if pids else ""

    def _power_cycle(self) -> str:
        self._stack.machine_power(self._chance.choice(self._machines), "reboot")
        return "power cycle"

    def _sshd(self) -> list[int]:
        return processes_of(self._site, self._chance.choice(self._machines), "sshd")

    def _stop_for(self, seconds: float, pids: list[int]) -> None:
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        self._later(seconds, lambda: _signal(pids, signal.SIGCONT))

    def _later(self, seconds: float, work: Callable[[], None]) -> None:
        timer = threading.Timer(seconds, work)
        timer.start()
        self._timers.append(timer)


def _set_link(port: str, state: str) -> None:
    # A machine that has rebooted meanwhile has a new link, which is up; one that is off has none.
    subprocess.run(["ip", "link", "set", port, state], check=False, timeout=10, stderr=subprocess.DEVNULL)


def _signal(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)
