"""The main job: objects, three nodes, one log, one end; each result is checked."""

import time
from collections.abc import Callable
from pathlib import Path

from cli.client import Client, Object
from cli.demo.story import Story
from cli.errors import CliError, ExitCode
from cli.manifests.applying import Applier
from cli.manifests.reading import read_documents
from cli.output import OutputFormat, pick
from cli.step_logs import read_log
from cli.watching import watch

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "demo"
CLUSTER, ARRAY, COUNT = "demo", "gpu", 3
LOGGED_STEP = "facts"
_OPERATION_SECONDS = 300.0
_MACHINE_SECONDS = 120.0
_LOOK = 0.3  # seconds between two looks at machines
_NODE_FIELDS = ("Name", "Status", "Hostname", "PrivateIp", "MachineType", "InstanceId")


class Job:
    """Runs the job against an API. Raises CliError with what went wrong or is not as it should be."""

    def __init__(self, client: Client, site: str, story: Story) -> None:
        self._client = client
        self._site = site
        self._story = story

    def run(self) -> list[Object]:
        """The whole job; returns the two operations, create and terminate, as they ended."""
        self._apply()
        self._make_room()
        created = self._create()
        nodes = self._list_nodes()
        self._show_log(created, str(nodes[0]["Name"]))
        ended = self._terminate(nodes[-1])
        return [created, ended]

    def _apply(self) -> None:
        self._story.chapter("Objects: a machine type, a pool with the machines, a profile, a cluster")
        self._story.say(f"bringup apply -f {EXAMPLES}", "dim")
        applied = list(Applier(self._client).apply(read_documents([EXAMPLES])))
        rows = [(one.kind, one.name, one.change.value, one.reference, one.detail) for one in applied]
        self._story.table(("kind", "name", "change", "reference", "detail"), rows)

    def _make_room(self) -> None:
        """An earlier run's nodes are ended first, so that every run shows the same."""
        left = [str(node["Name"]) for node in self._client.nodes(CLUSTER)]
        if left:
            self._story.chapter(f"Nodes of an earlier run: {', '.join(left)}; ending them to begin afresh")
            self._story.say(f"bringup nodes terminate {CLUSTER} {' '.join(left)} --wait", "dim")
            answer = self._client.terminate_nodes(CLUSTER, {"names": left})
            self._watch(answer)
        machines = self._client.fleet_list("nodes/list", {"siteId": self._site})
        held = [one for one in machines if one["booked"] or one["state"] == "failed"]
        if len(machines) - len(held) < COUNT:
            raise _wrong(
                f"{COUNT} free machines are needed, but {len(held)} of {len(machines)} have failed or are "
                "held by nodes of other clusters (bringup machines list, bringup clusters list); "
                "end those nodes, or start with more --machines, or with another --data-dir"
            )
        self._wait_for_machines(f"{COUNT} machines are ready and free", lambda free: len(free) >= COUNT)

    def _create(self) -> Object:
        self._story.chapter(f"{COUNT} nodes in the array {ARRAY} of the cluster {CLUSTER}")
        self._story.say(
            f"POST /clusters/{CLUSTER}/nodes/create, or: "
            f"bringup nodes create {CLUSTER} --array {ARRAY} --count {COUNT} --wait",
            "dim",
        )
        body = {"sets": [{"nodearray": ARRAY, "count": COUNT}]}
        answer = self._client.create_nodes(CLUSTER, body)
        done = answer["sets"][0]
        if done["added"] != COUNT:
            raise _wrong(f"only {done['added']} of {COUNT} nodes were added: {done.get('message')}")
        return self._watch(answer)

    def _watch(self, answer: Object) -> Object:
        operation_id = str(answer["operationId"])
        operation = watch(
            self._client, operation_id, OutputFormat.TABLE, _OPERATION_SECONDS, self._story.console
        )
        if operation["state"] != "succeeded":
            raise _wrong(f"{operation['action']} {operation_id} ended as {operation['state']}")
        return operation

    def _list_nodes(self) -> list[Object]:
        self._story.chapter("The nodes")
        self._story.say(f"bringup nodes list {CLUSTER}", "dim")
        nodes = sorted(self._client.nodes(CLUSTER), key=lambda node: str(node["Name"]))
        columns = ("name", "status", "hostname", "address", "machine type", "machine")
        self._story.table(columns, [pick(node, *_NODE_FIELDS) for node in nodes])
        ready = [node for node in nodes if node["Status"] == "Ready"]
        if len(nodes) != COUNT or len(ready) != COUNT:
            raise _wrong(f"{COUNT} Ready nodes were expected; {len(ready)} of {len(nodes)} are Ready")
        if any(node["Hostname"] != node["Name"] for node in nodes):
            raise _wrong("a node's hostname is not its name")
        addresses = {node["PrivateIp"] for node in nodes}
        if len(addresses) != COUNT or None in addresses:
            raise _wrong("the nodes have no addresses of their own")
        self._story.checked(f"{COUNT} nodes are Ready, called by their names, each at its own address")
        return nodes

    def _show_log(self, operation: Object, node: str) -> None:
        self._story.chapter(f"What the step {LOGGED_STEP} printed on {node}")
        command = f"bringup logs {operation['id']} --node {node} --step {LOGGED_STEP}"
        self._story.say(command, "dim")
        steps = self._client.fleet_list("operations/steps", {"operationId": operation["id"]})
        found = [one for one in steps if one["name"] == node and one["step"] == LOGGED_STEP]
        if not found:
            raise _wrong(f"the step {LOGGED_STEP} of {node} is not among the operation's steps")
        log = b"".join(read_log(self._client, found[-1], "stdout")).decode(errors="replace")
        self._story.text(log)
        expected = f"node     {node} of cluster {CLUSTER}, on machine {found[-1]['machineId']}"
        if expected not in log or f"hostname {node}" not in log:
            raise _wrong(f"the log does not hold what the step printed: {expected!r} and the hostname")
        self._story.checked("the log holds what the step printed on that machine")

    def _terminate(self, node: Object) -> Object:
        name, machine = str(node["Name"]), str(node["InstanceId"])
        self._story.chapter(f"The end of {name}: its machine is cleaned and given back")
        self._story.say(f"bringup nodes terminate {CLUSTER} {name} --wait", "dim")
        answer = self._client.terminate_nodes(CLUSTER, {"names": [name]})
        operation = self._watch(answer)
        left = [one for one in self._client.nodes(CLUSTER) if one["Name"] == name]
        ready = [one for one in self._client.nodes(CLUSTER) if one["Status"] == "Ready"]
        if left or len(ready) != COUNT - 1:
            raise _wrong(f"{COUNT - 1} Ready nodes and no {name} were expected; {len(ready)} are Ready")
        self._wait_for_machines(f"machine {machine} is ready and free again", lambda free: machine in free)
        self._story.checked(f"{len(ready)} nodes are Ready; the machine of {name} is ready for another")
        return operation

    def _wait_for_machines(self, what: str, enough: Callable[[set[str]], bool]) -> None:
        """Machines are cleaned after their node has ended, so they may come a little later."""
        deadline = time.monotonic() + _MACHINE_SECONDS
        while True:
            machines = self._client.fleet_list("nodes/list", {"siteId": self._site})
            free = {str(one["id"]) for one in machines if one["state"] == "ready" and not one["booked"]}
            if enough(free):
                return
            if time.monotonic() >= deadline:
                states = ", ".join(f"{one['name']} {one['state']} {one['message']}" for one in machines)
                raise _wrong(f"not within {_MACHINE_SECONDS:g} s: {what}; machines: {states}")
            time.sleep(_LOOK)


def _wrong(what: str) -> CliError:
    return CliError(what, ExitCode.FAILED)
