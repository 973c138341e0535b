"""A machine has one address, however it is written; a workflow has one in the Web UI."""

import uuid

import pytest

from api.addresses import workflow_url
from api.fleet.nodes import _reachable
from api.settings import ApiSettings


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("::FFFF:a00:1", "10.0.0.1"),
        ("FD00::0:7", "fd00::7"),
        ("Rack1-7.Example", "rack1-7.example"),
    ],
)
def test_an_address_is_kept_in_one_form(written: str, kept: str) -> None:
    assert _reachable(written) == kept


@pytest.mark.parametrize("written", ["300.1.1.1", "a b", "-x", "", "10.0.0.1/8"])
def test_what_is_no_address_is_refused(written: str) -> None:
    with pytest.raises(ValueError, match="must be an IP address or a host name"):
        _reachable(written)


@pytest.mark.parametrize(
    ("namespace", "shown"), [(None, "default"), ("gpu-fleet", "gpu-fleet"), ("a/b c", "a%2Fb%20c")]
)
def test_a_workflows_address_is_in_the_namespace_of_the_workers(namespace: str | None, shown: str) -> None:
    given = {"temporal_ui": "http://ui.test/", **({"temporal_namespace": namespace} if namespace else {})}
    address = workflow_url(ApiSettings.model_validate(given), uuid.UUID(int=7))
    assert address == (
        f"http://ui.test/namespaces/{shown}/workflows/operation%2F00000000-0000-0000-0000-000000000007"
    )


def test_without_a_web_ui_there_is_no_address() -> None:
    assert workflow_url(ApiSettings.model_validate({"temporal_ui": ""}), uuid.UUID(int=7)) is None
