"""The embedded Temporal server: a real one, really killed."""

import os
import signal
from datetime import timedelta
from pathlib import Path

import pytest
from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import ListSearchAttributesRequest
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.common import SearchAttributeKey, SearchAttributePair, TypedSearchAttributes

from cli.dev.lock import DirectoryInUseError
from cli.dev.process import EventKind
from cli.dev.temporal import NAMESPACE, SEARCH_ATTRIBUTES, EmbeddedTemporal, accepts
from tests.dev.conftest import Events

TENANT = SearchAttributeKey.for_keyword("BringupTenant")


async def test_a_killed_server_comes_back_on_its_ports_with_its_workflows(
    tmp_path: Path, events: Events
) -> None:
    server = EmbeddedTemporal(tmp_path, ui_port=0, on_event=events)
    await server.start()
    try:
        client = await Client.connect(server.address)
        handle = await client.start_workflow(
            "never-worked",
            id="operation/kept",
            task_queue="nobody",
            search_attributes=TypedSearchAttributes([SearchAttributePair(TENANT, "dev")]),
        )
        killed, address, ui_port = server.pid, server.address, server.ui_port
        assert killed is not None
        assert ui_port
        os.kill(killed, signal.SIGKILL)

        await events.until(EventKind.BACK)
        assert server.pid not in (None, killed)
        assert (server.address, server.ui_port) == (address, ui_port)
        assert await accepts(ui_port)
        described = await (await Client.connect(server.address)).get_workflow_handle(handle.id).describe()
        assert described.status is WorkflowExecutionStatus.RUNNING
        assert described.run_id == handle.result_run_id
        assert described.typed_search_attributes[TENANT] == "dev"

        with pytest.raises(DirectoryInUseError):
            await EmbeddedTemporal(tmp_path).start()
    finally:
        await server.stop()
    assert not await accepts(server.port)


async def test_history_is_kept_for_a_month_and_every_attribute_is_a_keyword(tmp_path: Path) -> None:
    server = EmbeddedTemporal(tmp_path)
    await server.start()
    try:
        client = await Client.connect(server.address)
        namespace = await client.workflow_service.describe_namespace(
            DescribeNamespaceRequest(namespace=NAMESPACE)
        )
        kept = namespace.config.workflow_execution_retention_ttl.ToTimedelta()
        assert kept == timedelta(days=30)
        attributes = await client.operator_service.list_search_attributes(
            ListSearchAttributesRequest(namespace=NAMESPACE)
        )
        for name in SEARCH_ATTRIBUTES:
            assert attributes.custom_attributes[name] == IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD
        assert server.ui_url is None
    finally:
        await server.stop()
