"""`bringup nodes`: the nodes of a cluster."""

from typing import Annotated, Any

import typer

from cli.commands.finishing import finish, print_started
from cli.commands.options import Api, Output, Tenant, Timeout, Token, Wait, connect
from cli.errors import CliError, ExitCode
from cli.output import OutputFormat, note, one_line, pick, print_json, show_table

CREATE_HELP = """Ask for nodes in an array of a cluster.

Returns at once with the operation's id; with --wait it shows the progress until all are Ready or failed.

Examples:

\b
  bringup nodes create demo --array gpu --count 3
  bringup nodes create demo --array gpu --count 3 --wait --timeout 300
  bringup nodes create demo --array gpu --count 3 --request-id job-4711      at most once, however often asked
  bringup nodes create demo --array gpu --count 1 -o json | jq -r .operationId
"""
LIST_HELP = """List a cluster's nodes with their state, machine and address.

Examples:

\b
  bringup nodes list demo
  bringup nodes list demo --operation 6f1e...      only the nodes of one operation
  bringup nodes list demo -o json | jq -r '.[] | select(.Status == "Ready") | .Hostname'
"""
TERMINATE_HELP = """End nodes by name: their machines are cleaned and go back to the pool.

Examples:

\b
  bringup nodes terminate demo gpu-3
  bringup nodes terminate demo gpu-1 gpu-2 --wait
"""

app = typer.Typer(help="Nodes of a cluster: create, list, terminate.", no_args_is_help=True)
Cluster = Annotated[str, typer.Argument(help="The cluster's name.", show_default=False)]
RequestId = Annotated[
    str | None, typer.Option(help="Your own id for this request; a second one with it is refused.")
]


@app.command("create", help=CREATE_HELP)
def create(
    cluster: Cluster,
    array: Annotated[str, typer.Option(help="The node array.", show_default=False)],
    count: Annotated[int, typer.Option(help="How many nodes.")] = 1,
    machine_type: Annotated[
        str | None, typer.Option(help="Only machines of this type. Default: the array's first with room.")
    ] = None,
    request_id: RequestId = None,
    wait: Wait = False,
    timeout: Timeout = None,
    output: Output = OutputFormat.TABLE,
    api: Api = None,
    token: Token = None,
    tenant: Tenant = None,
) -> None:
    wanted: dict[str, Any] = {"nodearray": array, "count": count}
    if machine_type:
        wanted["definition"] = {"machineType": machine_type}
    body = {"sets": [wanted], **({"requestId": request_id} if request_id else {})}
    with connect(api, token, tenant) as client:
        answer = client.create_nodes(cluster, body)
        added = answer["sets"][0]["added"]
        said = one_line(str(answer["sets"][0].get("message") or ""))
        if output is OutputFormat.TABLE:
            print_started(answer["operationId"], f"{added} of {count} nodes in {cluster}/{array}", wait=wait)
        # With --wait the operation's own message says the same at the end.
        if added < count and not (wait and added and output is OutputFormat.TABLE):
            note(said or f"only {added} of {count} nodes were added")
        code = ExitCode.OK if added == count else ExitCode.PARTIAL if added else ExitCode.FAILED
        wait = wait and added > 0
        raise typer.Exit(finish(client, answer["operationId"], answer, code, output, timeout, wait=wait))


@app.command("list", help=LIST_HELP)
def list_nodes(
    cluster: Cluster,
    operation: Annotated[str | None, typer.Option(help="Only nodes of this operation.")] = None,
    output: Output = OutputFormat.TABLE,
    api: Api = None,
    token: Token = None,
    tenant: Tenant = None,
) -> None:
    with connect(api, token, tenant) as client:
        nodes = client.nodes(cluster, operation)
    if output is OutputFormat.JSON:
        print_json(nodes)
        return
    columns = ("name", "array", "status", "hostname", "address", "machine type", "machine", "message")
    fields = (
        "Name",
        "Template",
        "Status",
        "Hostname",
        "PrivateIp",
        "MachineType",
        "InstanceId",
        "StatusMessage",
    )
    show_table(columns, [pick(node, *fields) for node in nodes], f"cluster {cluster} has no nodes")


@app.command("terminate", help=TERMINATE_HELP)
def terminate(
    cluster: Cluster,
    names: Annotated[list[str], typer.Argument(help="Names of nodes.", show_default=False)],
    request_id: RequestId = None,
    wait: Wait = False,
    timeout: Timeout = None,
    output: Output = OutputFormat.TABLE,
    api: Api = None,
    token: Token = None,
    tenant: Tenant = None,
) -> None:
    body = {"names": names, **({"requestId": request_id} if request_id else {})}
    with connect(api, token, tenant) as client:
        answer = client.terminate_nodes(cluster, body)
        good = [node["name"] for node in answer["nodes"] if node["status"] == "OK"]
        for node in answer["nodes"]:
            if node["status"] != "OK":
                note(f"{node['name']}: {node.get('error') or node['status']}")
        known = {node["name"] for node in answer["nodes"]}
        for name in sorted(set(names) - known):
            note(f"{name}: cluster {cluster} has no such node")
        if not known:
            raise CliError("none of these nodes is there; nothing was done")
        if output is OutputFormat.TABLE:
            what = f"end of {', '.join(good) or 'no node'} in {cluster}"
            print_started(answer["operationId"], what, wait=wait)
        missed = len(set(names)) - len(good)
        code = ExitCode.OK if not missed else ExitCode.PARTIAL if good else ExitCode.FAILED
        wait = wait and bool(good)
        raise typer.Exit(finish(client, answer["operationId"], answer, code, output, timeout, wait=wait))
