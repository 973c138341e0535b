"""The platform's own step: a machine is called what its node is called, now and after a reboot."""

import re
import shlex

from profiles.kinds.base import StepBody
from profiles.problems import Problem, ProfileError

HOSTNAME_STEP = "hostname"

# What `hostname` of Debian takes; Linux itself stops at 64 bytes.
_HOSTNAME = re.compile(
    r"(?=.{1,63}\Z)[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*\Z"
)

# A machine's own addresses in /etc/hosts (cloud-init, DHCP hooks) are left alone: a line is added only where
# the name does not resolve by that file yet. Files are rewritten in place, for they may be bind mounts.
_RESOLVES = """\
set -f
resolves() {
    while read -r address names || [ -n "$address" ]; do
        case $address in '#'*) continue ;; esac
        for word in ${names%%#*}; do
            if [ "$word" = "$name" ]; then return 0; fi
        done
    done < /etc/hosts
    return 1
}
"""
_RUN = """\
set -eu
printf '%s\\n' "$name" > /etc/hostname
touch /etc/hosts
if ! resolves; then
    kept=$(grep -v '# bringup: hostname$' /etc/hosts || :)
    short=${name%%.*}
    [ "$short" = "$name" ] && aliases=$name || aliases="$name $short"
    printf '%s\\n' ${kept:+"$kept"} "127.0.1.1 $aliases # bringup: hostname" > /etc/hosts
fi
hostname "$name"
"""
_CHECK = """\
[ "$(uname -n)" = "$name" ] && [ "$(cat /etc/hostname)" = "$name" ] && resolves
"""


def hostname_body(hostname: str) -> StepBody:
    """Shell text that names a machine, and its check; raises ProfileError for what cannot be a hostname."""
    if not _HOSTNAME.match(hostname):
        shown = repr(hostname[:80])
        message = f"{shown} cannot be a hostname: 1 to 63 letters, digits, dashes and dots are"
        raise ProfileError([Problem("hostname", message)])
    given = f"name={shlex.quote(hostname)}\n"
    return StepBody(run=given + _RESOLVES + _RUN, check=given + _RESOLVES + _CHECK)
