"""The same ten steps on many machines, by bringup and by what people would use instead.

Starts a `bringup dev` of its own in a temporary folder, with as many sandbox machines as the largest number
asked for, and lets each tool apply the same ten-step recipe to the same machines, one tool after another.
Every step is check, apply, verify:

  bringup   from the request for N nodes until all are Ready: API, PostgreSQL, Temporal, worker, supervisor,
            logs, every step recorded and named; the services run already
  paramiko  the floor: one thread and one connection a machine, ten commands, nothing else; its start is free
  pyinfra   server.shell for each step, --parallel N --no-wait; its start counts
  ansible   the shell module for each step, 50 forks, pipelining, no fact gathering, ControlPersist; its start
            counts

Before each tool every machine is looked at whether nothing of the recipe is in effect, and after it whether
all ten effects are there; a tool that failed on one machine makes the run fail. Then the recipe is taken
back: bringup terminates its nodes and cleans the machines, for the others the files are removed. Each tool
begins when bringup and the machines are at rest. Each round begins with another tool.

Prints wall time; processor time of the tool's own processes, of the machines and of the whole host (on
which nothing else should run); the ratios; and where bringup's time goes.

pyinfra and Ansible are installed by pip, pinned, into virtual environments in a cache folder, once.

Needs root and a cgroup2 tree. Ctrl-C stops everything and leaves nothing. Exit status: 0, or 1 when a tool
failed, 2 for a wrong command line, 130 after Ctrl-C.
"""

import argparse
import json
import os
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from bench.fanout.ansible import Ansible
from bench.fanout.bringup import Bringup
from bench.fanout.environments import default_cache
from bench.fanout.errors import BenchError
from bench.fanout.paramiko import Paramiko
from bench.fanout.pyinfra import Pyinfra
from bench.fanout.report import document, line, table
from bench.fanout.rounds import Sample, in_turn, measure
from bench.fanout.tools import Tool
from bench.processor import Meter
from bench.stack import BenchStack

PEERS = ("paramiko", "pyinfra", "ansible")
MOST_MACHINES = 250
MOST_ROUNDS = 100

EXAMPLES = """\
examples:
  python -m bench.fanout --machines 10 --peers paramiko,pyinfra    half a minute
  python -m bench.fanout --rounds 3 --json fanout.json             the whole comparison
  python -m bench.fanout --machines 40 --peers none                only where bringup's time goes
"""


def _whole(text: str, most: int, what: str) -> int:
    if not (text.isdecimal() and 1 <= int(text) <= most):
        raise argparse.ArgumentTypeError(f"{what} must be a whole number from 1 to {most}, not {text!r}")
    return int(text)


def _sizes(text: str) -> list[int]:
    return sorted({_whole(part, MOST_MACHINES, "each number of machines") for part in text.split(",")})


def _rounds(text: str) -> int:
    return _whole(text, MOST_ROUNDS, "the number of rounds")


def _peers(text: str) -> list[str]:
    names = [] if text == "none" else text.split(",")
    if unknown := sorted(set(names) - set(PEERS)):
        raise argparse.ArgumentTypeError(f"no such peer: {', '.join(unknown)}; there are {', '.join(PEERS)}")
    return list(dict.fromkeys(names))


def parsed(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The options; ends the process with status 2 when they are wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.fanout",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--machines", type=_sizes, default=[10, 40, 100], metavar="N,...", help="(default: 10,40,100)")
    add("--rounds", type=_rounds, default=1, metavar="R", help="how often each tool runs (default: 1)")
    add("--peers", type=_peers, default=list(PEERS), metavar="P,...", help="or none (default: all three)")
    add("--json", type=Path, metavar="FILE", help="write everything measured there as well")
    add("--cache", type=Path, default=default_cache(), metavar="FOLDER", help="(default: %(default)s)")
    return parser.parse_args(arguments)


def make_tools(stack: BenchStack, peers: Sequence[str], folder: Path, cache: Path) -> list[Tool]:
    """bringup and the peers asked for; makes the environments that are missing."""
    makers: dict[str, Any] = {
        "paramiko": Paramiko,
        "pyinfra": lambda: Pyinfra(folder / "pyinfra", cache),
        "ansible": lambda: Ansible(folder / "ansible", cache),
    }
    return [Bringup(stack), *(makers[name]() for name in peers)]


def compare(stack: BenchStack, tools: Sequence[Tool], sizes: Sequence[int], rounds: int) -> list[Sample]:
    """All rounds at all sizes; prints each result as it comes."""
    meter, samples = Meter(stack), []
    for machines in sizes:
        for number in range(rounds):
            for tool in in_turn(tools, number):
                samples.append(measure(tool, stack, meter, machines, number))
                print(line(samples[-1]), flush=True)
    return samples


def _on_signal(number: int, frame: FrameType | None) -> None:
    # Once: what stops everything must not be stopped by an impatient second Ctrl-C.
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)
    print("stopping", file=sys.stderr, flush=True)
    raise SystemExit(128 + number)


def main() -> None:
    """See the module."""
    options = parsed()
    if os.geteuid() != 0:
        raise SystemExit("machines need root")
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, _on_signal)
    with tempfile.TemporaryDirectory(prefix="bringup-bench.") as folder:
        stack = BenchStack(Path(folder) / "data", machines=max(options.machines))
        try:
            tools = make_tools(stack, options.peers, Path(folder), options.cache.absolute())
            print(f"starting bringup dev with {stack.machines} machines", flush=True)
            stack.start()
            samples = compare(stack, tools, options.machines, options.rounds)
        except BenchError as error:
            raise SystemExit(f"the run failed: {error}") from None
        finally:
            stack.close()
    print(f"\n{table(samples)}")
    if options.json:
        versions = {tool.name: tool.version for tool in tools}
        options.json.write_text(json.dumps(document(samples, versions), indent=1) + "\n")


if __name__ == "__main__":
    main()
