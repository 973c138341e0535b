"""What this host can and its tools know, found out once per process."""

import re
import subprocess
from functools import cache

from providers.sandbox.host import COMMAND_PATH, CommandError, command


@cache
def has_time_namespace() -> bool:
    """Say whether machines can have a clock of their own since boot; else they show the host's uptime."""
    # Needs a right (CAP_SYS_TIME) that containers lack.
    try:
        command("unshare", "--time", "--boottime", "-1", "--fork", "true")
    except CommandError:
        return False
    return True


@cache
def sshd_options() -> str:
    """Return options that this host's sshd needs beside its configuration file.

    From 9.8 on sshd shuts out addresses that probe often, which is what waiting for a machine looks like;
    before, it refuses the option that switches this off.
    """
    # Not `sshd -t`, which fails where no sshd was ever started. Old versions answer -V with usage, version.
    done = subprocess.run(
        ["sshd", "-V"], env={"PATH": COMMAND_PATH}, capture_output=True, text=True, check=False
    )
    version = re.search(r"OpenSSH_(\d+)\.(\d+)", done.stderr + done.stdout)
    newer = version is not None and (int(version[1]), int(version[2])) >= (9, 8)
    return "-oPerSourcePenalties=no" if newer else ""
