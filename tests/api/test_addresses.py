"""A machine has one address, however it is written."""

import pytest

from api.fleet.nodes import _reachable


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
