"""The one factory for Temporal clients, and the sandbox that worker and replayer must share."""

from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.envconfig import ClientConfig
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

DATA_CONVERTER = pydantic_data_converter

# Errors in workflow code end the workflow, whose parent or the watchdog then records a card; by default they
# would be tried again for ever and look like progress. What is left out on purpose is a replay that differs
# (NondeterminismError): that waits for a worker with the right code, and loses nothing.
CODE_ERRORS: tuple[type[BaseException], ...] = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    NameError,
    RuntimeError,
    TypeError,
    ValueError,
)

# Pure at import, so that not each run has to import them anew.
_PASSED_THROUGH = (
    "pydantic",
    "pydantic_core",
    "annotated_types",
    "domain",
    "activities",
    "workflows.attributes",
    "workflows.calls",
    "workflows.failures",
    "workflows.options",
)


def workflow_runner() -> SandboxedWorkflowRunner:
    """The sandbox, with our own pure modules passed through."""
    return SandboxedWorkflowRunner(
        restrictions=SandboxRestrictions.default.with_passthrough_modules(*_PASSED_THROUGH)
    )


async def connect(address: str | None = None, namespace: str | None = None, *, lazy: bool = False) -> Client:
    """A client for every process alike.

    What is not given is read as the `temporal` command reads it: TEMPORAL_ADDRESS, TEMPORAL_NAMESPACE,
    TEMPORAL_API_KEY, TEMPORAL_TLS_..., or its configuration file. With `lazy` the server may still be down.
    """
    config = ClientConfig.load_client_connect_config()
    if address is not None:
        config["target_host"] = address
    if namespace is not None:
        config["namespace"] = namespace
    return await Client.connect(**config, data_converter=DATA_CONVERTER, lazy=lazy)
