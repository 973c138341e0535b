"""`check` finds every problem at once and says where it is and what would be accepted."""

import typing

import pytest
from hypothesis import given

from profiles.checking import MAX_PROBLEMS, check, parse
from profiles.content import STEP_KINDS, OnFailure, Phase, Step
from profiles.documents import load
from profiles.problems import ProfileError
from tests.profiles.recipes import recipe, recipes


@given(recipes())
def test_a_recipe_in_order_has_no_problems(raw: dict[str, object]) -> None:
    assert check(raw) == []


def test_defaults_are_filled_in() -> None:
    step = parse(recipe()).steps[0]
    assert (step.phase, step.on_failure, step.timeout_seconds) == (Phase.CREATE, OnFailure.FAIL, 600)
    assert (step.retry.attempts, step.retry.backoff_seconds) == (1, 5)


def test_the_kinds_that_are_named_are_the_kinds_that_are_read() -> None:
    union = typing.get_args(typing.get_args(Step)[0])
    read = {typing.get_args(kind.model_fields["uses"].annotation)[0]: kind for kind in union}
    assert read == STEP_KINDS


BAD_STEPS = [
    ({"name": "Tune"}, "name", "1 to 63 lower-case letters, digits and dashes.*not 'Tune'"),
    ({"name": "a;rm -rf /"}, "name", "lower-case letters"),
    ({"name": "$(reboot)"}, "name", "lower-case letters"),
    ({"name": "tune\n"}, "name", "lower-case letters"),
    ({"name": "a" * 64}, "name", "1 to 63"),
    ({"name": None}, "name", "not nothing"),
    ({"name": "hostname"}, "name", "belongs to the platform"),
    ({"uses": "comand"}, "uses", "no step kind 'comand'; it has command, .*script.*; did you mean command"),
    ({"uses": "driver"}, "uses", "this release has no step kind 'driver'"),
    ({"uses": ["command"]}, "uses", "no step kind a list"),
    ({"with": None}, "with", "must be a mapping, not nothing"),
    ({"with": {}}, "with.run", "is missing"),
    ({"with": {"run": ""}}, "with.run", "1 to 65,536 bytes"),
    ({"with": {"run": " \n"}}, "with.run", "1 to 65,536 bytes"),
    ({"with": {"run": "a\0b"}}, "with.run", "without NUL"),
    ({"with": {"run": "x" * 65_537}}, "with.run", "a text of 65,537 bytes"),
    ({"with": {"run": "é" * 32_769}}, "with.run", "a text of 65,538 bytes"),
    ({"with": {"run": "\ud800"}}, "with.run", "UTF-8"),
    ({"with": {"run": 5}}, "with.run", "not 5"),
    ({"with": {"run": "x", "chekc": "y"}}, "with.chekc", "did you mean check"),
    ({"with": {"run": "x", "check": []}}, "with.check", "not a list"),
    ({"uses": "script", "with": {"run": "x", "content": "y"}}, "with.run", "unknown key; known are content"),
    (
        {"uses": "script", "with": {"content": "x", "interpreter": "/bin/sh; reboot"}},
        "with.interpreter",
        "absolute path",
    ),
    (
        {"uses": "script", "with": {"content": "x", "interpreter": "bash"}},
        "with.interpreter",
        "absolute path",
    ),
    ({"uses": "script", "with": {"content": "#!/usr/bin/env bash\nx"}}, "with", "give `interpreter`"),
    ({"phase": "creat"}, "phase", "one of create, start, deallocate, terminate, not 'creat'"),
    ({"timeoutSeconds": 0}, "timeoutSeconds", "from 1 to 86400, not 0"),
    ({"timeoutSeconds": 86_401}, "timeoutSeconds", "from 1 to 86400"),
    ({"timeoutSeconds": "600"}, "timeoutSeconds", "whole number of seconds"),
    ({"timeoutSeconds": True}, "timeoutSeconds", "not true"),
    ({"timeoutSeconds": 1.0}, "timeoutSeconds", "not 1.0"),
    ({"timeout": 5}, "timeout", "did you mean timeoutSeconds"),
    ({"timeout_seconds": 5}, "timeout_seconds", "did you mean timeoutSeconds"),
    ({"retry": 3}, "retry", "must be a mapping, not 3"),
    ({"retry": {"attempts": 11}}, "retry.attempts", "from 1 to 10, not 11"),
    ({"retry": {"backoffSeconds": 3_601}}, "retry.backoffSeconds", "from 0 to 3600"),
    ({"retry": {"atempts": 2}}, "retry.atempts", "did you mean attempts"),
    (
        {"disruption": "drain"},
        "disruption",
        "does not run steps with disruption: drain yet; it runs none or reboot",
    ),
    ({"disruption": "some"}, "disruption", "one of none, reload, drain, reboot"),
    ({"onFailure": "wait"}, "onFailure", "one of fail, continue, hold, not 'wait'"),
    ({"uses": "reboot", "with": {}, "disruption": "none"}, "disruption", "must be reboot"),
    ({"a b\n": 1}, '["a b\\n"]', "unknown key"),
]


@pytest.mark.parametrize(("change", "place", "says"), BAD_STEPS)
def test_one_mistake_in_a_step_is_one_problem_at_its_place(
    change: dict[str, object], place: str, says: str
) -> None:
    problems = check(recipe(**change))
    assert [problem.path for problem in problems] == [
        "steps[0]" + (place if place[0] == "[" else "." + place)
    ]
    with pytest.raises(ProfileError, match=says):
        parse(recipe(**change))


@pytest.mark.parametrize(
    ("raw", "path", "says"),
    [
        (None, "", "must be a mapping, not nothing"),
        ([], "", "must be a mapping, not a list"),
        ({"steps": recipe()["steps"]}, "schema", "is missing"),
        ({**recipe(), "schema": 2}, "schema", "must be 1"),
        ({**recipe(), "schema": True}, "schema", "must be 1"),
        ({**recipe(), "schema": "1"}, "schema", "must be 1"),
        ({**recipe(), "stesp": []}, "stesp", "did you mean steps"),
        ({"schema": 1}, "steps", "is missing"),
        ({"schema": 1, "steps": []}, "steps", "1 to 200 steps, not 0"),
        ({"schema": 1, "steps": [1] * 201}, "steps", "1 to 200 steps, not 201"),
        ({"schema": 1, "steps": {}}, "steps", "list of 1 to 200 steps, not a mapping"),
    ],
)
def test_a_mistake_around_the_steps_is_one_problem(raw: object, path: str, says: str) -> None:
    assert [problem.path for problem in check(raw)] == [path]
    with pytest.raises(ProfileError, match=says):
        parse(raw)


def test_all_problems_are_reported_at_once_with_path_and_line() -> None:
    document = load(
        "schema: 3\n"
        "steps:\n"
        "  - name: Tune\n"
        "    uses: file\n"
        "    timeoutSeconds: 0\n"
        "    extra: 1\n"
        "  - name: two\n"
        "    uses: command\n"
        "    with:\n"
        "      rnu: x\n"
        "    retry: {attempts: 0, backoffSeconds: -1}\n"
        "  - name: two\n"
        "    uses: script\n"
        "    with: {content: x}\n"
        "    onFailure: wait\n"
        "  - 5\n"
        "unknown: 1\n"
    )
    assert [(problem.line, problem.path) for problem in check(document)] == [
        (1, "schema"),
        (3, "steps[0].name"),
        (4, "steps[0].uses"),
        (5, "steps[0].timeoutSeconds"),
        (6, "steps[0].extra"),
        (3, "steps[0].with"),
        (10, "steps[1].with.rnu"),
        (9, "steps[1].with.run"),
        (11, "steps[1].retry.attempts"),
        (11, "steps[1].retry.backoffSeconds"),
        (12, "steps[2].name"),
        (15, "steps[2].onFailure"),
        (16, "steps[3]"),
        (17, "unknown"),
    ]


def test_a_name_given_three_times_is_two_problems_that_name_the_first() -> None:
    step = {"name": "a", "uses": "command", "with": {"run": "x"}}
    problems = check({"schema": 1, "steps": [step, step, step]})
    assert [problem.path for problem in problems] == ["steps[1].name", "steps[2].name"]
    assert all("steps[0]" in problem.message for problem in problems)


def test_a_flood_of_problems_is_cut_and_counted() -> None:
    problems = check({**recipe(), **{f"key{number}": 1 for number in range(MAX_PROBLEMS + 7)}})
    assert len(problems) == MAX_PROBLEMS + 1
    assert problems[-1].message == "there are 7 more problems"


def test_a_problem_reads_as_one_line() -> None:
    with pytest.raises(ProfileError) as refused:
        parse(load("schema: 1\nsteps:\n- name: a\n  uses: command\n  with: {run: 5}\n"))
    assert str(refused.value).startswith("line 5: steps[0].with.run: must be shell text")
