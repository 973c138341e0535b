"""What a person can do about an operation as it is: about what waits for them, and about what failed."""

from cli.client import Object
from cli.output import few
from cli.progress import FINAL_STATES, ended

# More nodes than these are not named one by one in a command to copy.
_MOST_NAMED = 3
# What retries take; a terminate ends by itself.
_RETRYABLE = ("create", "join", "clean")


def advice(operation: Object) -> list[str]:
    """At most a few lines, each with the command to go on with; none when nothing is to be done."""
    runs = operation.get("progress", [])
    if ended(operation):
        return _after(operation)
    held = [str(run["name"]) for run in runs if run["state"] == "held"]
    unproven = [str(run["name"]) for run in runs if run["state"] == "cancel_unconfirmed"]
    lines = []
    if held:
        still = sum(run["state"] not in FINAL_STATES for run in runs)
        lines.append(_about_held(str(operation["id"]), held, alone=still == len(held)))
    if unproven:
        lines.append(
            f"{few(unproven)}: nothing proves yet that the cancelled step has ended, for the reason that is "
            "shown; the machine is asked again until it says so"
        )
    return lines


def _about_held(operation_id: str, held: list[str], *, alone: bool) -> str:
    named = "".join(f" --node {name}" for name in held) if len(held) <= _MOST_NAMED else ""
    goes_on = "; nothing goes on until then" if alone else ""
    command, which = "bringup operations", f"{operation_id}{named}"
    return (
        f"held for you to look at: {few(held)}; then run the failed step again with: "
        f"{command} resume {which}, or give up with: {command} abort {which}{goes_on}"
    )


def _after(operation: Object) -> list[str]:
    if operation["state"] == "succeeded" or operation["action"] not in _RETRYABLE:
        return []
    if not any(run["state"] in ("failed", "canceled") for run in operation.get("progress", [])):
        return []
    return [f"go on where it stopped with: bringup operations retry {operation['id']}"]
