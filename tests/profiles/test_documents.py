"""Recipe text is read as its author wrote it, and hostile text is refused with its line."""

import json
import time
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiles.documents import LocatedMapping, line_of, load
from profiles.problems import ProfileError
from tests.profiles.recipes import recipes


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("on", "on"),
        ("no", "no"),
        ("0644", "0644"),
        ("0o644", "0o644"),
        ("2024-01-01", "2024-01-01"),
        ("1_000", "1_000"),
        ("12:30:45", "12:30:45"),
        ("600", 600),
        ("-5", -5),
        ("1.5", 1.5),
        ("true", True),
        ("'true'", "true"),
        ("~", None),
        ("!!str 7", "7"),
        ("|\n  one\n  two\n", "one\ntwo\n"),
    ],
)
def test_plain_values_stay_what_the_author_wrote(written: str, read: object) -> None:
    document = load(f"key: {written}")
    assert isinstance(document, dict)
    assert document == {"key": read}
    assert type(document["key"]) is type(read)


def test_an_alias_repeats_its_anchor() -> None:
    assert load("a: &body {run: x}\nb: *body") == {"a": {"run": "x"}, "b": {"run": "x"}}


@given(recipes())
def test_a_recipe_in_json_is_read_as_json(raw: dict[str, object]) -> None:
    assert load(json.dumps(raw)) == raw
    assert load(json.dumps(raw, ensure_ascii=False, indent=1).encode()) == raw


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("a: 1\nb: [", 2, "not valid YAML"),
        ("a: 1\nb: 2\na: 3\n", 3, "'a' is already given on line 1"),
        ('{"a": 1,\n "a": 2}', 2, "'a' is already given on line 1"),
        ("---\na: 1\n---\nb: 2\n", 3, "a second document"),
        ("a: 1\nb: !!python/object/apply:os.system [x]\n", 2, "tag"),
        ("a: !!int x", 1, "not of the type"),
        ("a: &loop\n  - *loop\n", 2, "loop"),
        ("a: *nowhere", 1, "nowhere"),
        ("[a, b]: 1", 1, "key must be plain text"),
        (b"a: 1\nb: \xff\n", 2, "not UTF-8"),
        ("a: 1\n\tb: 2\n", 2, "not valid YAML"),
    ],
)
def test_a_mistake_in_the_text_is_refused_with_its_line(text: str | bytes, line: int, says: str) -> None:
    with pytest.raises(ProfileError, match=says) as refused:
        load(text)
    assert [problem.line for problem in refused.value.problems] == [line]


@pytest.mark.parametrize("text", ["", "   \n", "# only a comment\n", "~", b"\xef\xbb\xbf"])
def test_an_empty_document_says_so(text: str | bytes) -> None:
    with pytest.raises(ProfileError, match="empty"):
        load(text)


def _laughs() -> str:
    lines = ["a0: &a0 [" + ",".join(["x"] * 10) + "]"]
    return "\n".join(lines + [f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 30)])


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (_laughs(), "aliases expand"),
        ("a: &a " + "x" * 60_000 + "\nb: [" + "*a," * 1000 + "]", "aliases expand"),
        ("k: [" + "a," * 300_000 + "]", "more than 20,000 values"),
        ("[" * 100_000, "nested deeper than 32"),
        ("a: " + "[" * 40 + "]" * 40, "nested deeper than 32"),
        ('{"a": ' * 100_000, "nested deeper than 32"),
        ("x" * 10_000_000, "10,000,000 bytes; at most 1,048,576"),
        (b"x" * 1_048_577, "1,048,577 bytes"),
    ],
    ids=["billion laughs", "large alias", "many values", "deep", "deep list", "deep json", "10 MB", "bytes"],
)
def test_a_document_that_explodes_is_refused_quickly(text: str | bytes, says: str) -> None:
    began = time.process_time()
    with pytest.raises(ProfileError, match=says):
        load(text)
    assert time.process_time() - began < 5


@given(st.text(max_size=200) | st.binary(max_size=200))
def test_any_text_is_read_or_refused_with_a_profile_error(text: str | bytes) -> None:
    with suppress(ProfileError):
        load(text)


def test_a_value_knows_the_line_of_its_key() -> None:
    document = load("schema: 1\nsteps:\n  - name: a\n    with:\n      run: x\n  - name: b\n")
    assert isinstance(document, LocatedMapping)
    assert line_of(document, ["steps", 0, "with", "run"]) == 5
    assert line_of(document, ["steps", 1]) == 6
    assert line_of(document, ["steps", 1, "missing"]) == 6
    assert line_of({"a": 1}, ["a"]) is None
