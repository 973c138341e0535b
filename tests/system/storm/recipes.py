"""What nodes are made of in a storm. Every body tells a ledger on its machine that it was run."""

from typing import Any

from tests.system.conftest import command

_KEY = '"$BRINGUP_OPERATION/$BRINGUP_NODE/$BRINGUP_STEP/$BRINGUP_ATTEMPT"'
# The lock is inherited by whatever a body starts. Who does not get it runs beside what an earlier step left.
_HEAD = f"""echo ran {_KEY} >> /var/ledger
exec 7>> /var/busy
flock -n 7 || echo OVERLAP {_KEY} >> /var/ledger
"""
# It ignores TERM, and so does its child, which has left its session and lost its parent.
# `turns` are half seconds.
_STUBBORN = """trap '' TERM
(setsid sh -c 'trap "" TERM; n=0; while [ $n -lt {turns} ]; do n=$((n+1)); sleep 0.5; done' &)
n=0; while [ $n -lt {turns} ]; do n=$((n+1)); sleep 0.5 || :; done; sleep 1"""
# How many numbered lines a step says on each stream, by its name.
LINES = {"chat": 60, "chatter": 200, "checked": 40, "booted": 20}
# Its log is the ledger of its machine, read once everything of before has been ended there.
LEDGER = {
    "name": "ledger",
    "uses": "command",
    "with": {"run": "cat /var/ledger 2>/dev/null; true"},
    "phase": "terminate",
    "timeoutSeconds": 30,
}


def _step(name: str, run: str, check: str | None = None, **more: Any) -> dict[str, Any]:
    return command(name, _HEAD + run, check, **more)


def _says(name: str, pause: float, then: str = "true", check: str | None = None) -> dict[str, Any]:
    line = f'echo "out $n"; echo "err $n" >&2; sleep {pause}'
    lines = f"n=0; while [ $n -lt {LINES[name]} ]; do n=$((n+1)); {line}; done"
    return _step(name, f"{lines}; {then}", check)


_LAST = _step("last", "true")
_TWICE = {"attempts": 2, "backoffSeconds": 1}
RECIPES: dict[str, list[dict[str, Any]]] = {
    "quick": [_step("a", "true"), _step("b", "true"), _step("c", "true")],
    "talk": [_says("chat", 0.05), _says("chatter", 0.02), _LAST],
    "stubborn": [_step("stay", _STUBBORN.format(turns=12), timeoutSeconds=60, retry=_TWICE), _LAST],
    "late": [_step("late", _STUBBORN.format(turns=60), timeoutSeconds=3, retry=_TWICE), _LAST],
    "checked": [
        _says("checked", 0.05, "touch /var/checked", "test -e /var/checked"),
        _step("slow", "sleep 4; touch /var/slow", "test -e /var/slow"),
        _LAST,
    ],
    "reboot": [
        _step("a", "true"),
        {"name": "boot", "uses": "reboot", "with": {}, "timeoutSeconds": 90},
        _says("booted", 0.05),
    ],
    "flaky": [
        _step("third", "sleep 0.5; [ $BRINGUP_ATTEMPT -ge 3 ]", retry={"attempts": 3, "backoffSeconds": 1}),
        _LAST,
    ],
    "hold": [_step("second", "sleep 1; [ $BRINGUP_ATTEMPT -ge 2 ]", onFailure="hold"), _LAST],
    "fail": [_step("a", "true"), _step("fail", "echo no such disk >&2; exit 3"), _LAST],
    "pass": [_step("fail", "exit 4", onFailure="continue"), _step("slow", "sleep 4"), _LAST],
}
