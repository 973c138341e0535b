"""What steps write to BRINGUP_OUTPUT, read strictly: nothing is guessed and nothing is lost in silence."""

import pytest

from activities.steps.outputs import OutputError, parse_outputs


@pytest.mark.parametrize(
    ("text", "outputs"),
    [
        (b"version=550.54\n", {"version": "550.54"}),
        (b"a=1\n\nb-c=x=y\n", {"a": "1", "b-c": "x=y"}),
        (b"empty=\nlast=no newline", {"empty": "", "last": "no newline"}),
        (b"again=1\nagain=2\n", {"again": "2"}),
        (b' {"gpus": [{"uuid": "GPU-1"}], "n": 2}', {"gpus": [{"uuid": "GPU-1"}], "n": 2}),
        ("name=\u00fc\n".encode(), {"name": "\u00fc"}),
        (b"\n", {}),
    ],
)
def test_lines_and_objects_are_read(text: bytes, outputs: dict[str, object]) -> None:
    assert parse_outputs(text) == outputs


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"no equals sign\n", "line 1 of BRINGUP_OUTPUT is not name=value"),
        (b"ok=1\n1st=x\n", "line 2 of BRINGUP_OUTPUT is not name=value"),
        (b"=value\n", "line 1"),
        (b"\xff\xfe", "not UTF-8"),
        (b"a=\0\n", "NUL"),
        (b'{"a": 1', "begins like JSON"),
        (b'{"a": NaN}', "NaN is no JSON value"),
        (b'{"a": "\\u0000"}', "NUL"),
        (b"{" * 100_000, "begins like JSON"),
        (b"".join(b"n%d=1\n" % n for n in range(201)), "names 201 outputs; at most 200"),
    ],
)
def test_anything_else_is_refused_with_its_place(text: bytes, said: str) -> None:
    with pytest.raises(OutputError, match=said):
        parse_outputs(text)
