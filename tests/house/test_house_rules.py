"""House rules that a linter does not know, checked on the source itself."""

import ast
import inspect
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import Any
from unittest.mock import Mock

import pytest
from temporalio import activity, workflow

import activities
import workflows
from activities import signatures
from activities.registry import activities as registered_activities
from workflows.registry import WORKFLOWS

ROOT = Path(__file__).parents[2]
PACKAGES = (
    "api",
    "workflows",
    "activities",
    "worker",
    "profiles",
    "domain",
    "database",
    "providers",
    "cli",
)
# Clocks, chance and order that differ on replay; `workflow.now`, `uuid4`, `random`, `wait` replace them.
FORBIDDEN_CALLS = {
    "asyncio.wait",
    "asyncio.as_completed",
    "asyncio.sleep",
    "datetime.now",
    "datetime.utcnow",
    "datetime.today",
    "time.time",
    "time.monotonic",
    "time.sleep",
    "uuid.uuid1",
    "uuid.uuid4",
    "uuid4",
    "random.random",
    "os.urandom",
    "workflow.execute_activity",
    "workflow.start_activity",
}
DEPENDENCIES: dict[str, Any] = {
    name: Mock()
    for name in ("database", "client", "pool", "secrets", "threads", "providers", "reach_tries", "lost_after")
} | {"slots": 4}


def sources(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), filename=str(path))


def dotted(node: ast.expr) -> str:
    return ast.unparse(node) if isinstance(node, ast.Attribute | ast.Name) else ""


def calls(path: Path) -> Iterator[tuple[str, ast.Call]]:
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Call):
            yield dotted(node.func), node


def is_set(node: ast.expr) -> bool:
    return isinstance(node, ast.Set | ast.SetComp) or (
        isinstance(node, ast.Call) and dotted(node.func) in ("set", "frozenset")
    )


@pytest.mark.parametrize("path", sources("workflows"), ids=str)
def test_workflows_use_no_clock_no_chance_and_no_activity_by_name(path: Path) -> None:
    found = [f"{name} in line {call.lineno}" for name, call in calls(path) if name in FORBIDDEN_CALLS]
    assert not found


@pytest.mark.parametrize("path", sources("workflows"), ids=str)
def test_workflows_never_iterate_over_a_set(path: Path) -> None:
    loops = [
        node.lineno if isinstance(node, ast.For) else node.target.lineno
        for node in ast.walk(tree(path))
        if isinstance(node, ast.For | ast.comprehension) and is_set(node.iter)
    ]
    assert not loops


def test_only_the_unit_of_work_commits() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{call.lineno}"
        for package in PACKAGES
        for path in sources(package)
        for name, call in calls(path)
        if name.endswith(".commit") and path != ROOT / "database" / "unit_of_work.py"
    ]
    assert not found


def modules(package: object) -> Iterator[object]:
    path, name = package.__path__, package.__name__  # type: ignore[attr-defined]
    for found in walk_packages(path, f"{name}."):
        if not found.name.endswith("__main__"):
            yield import_module(found.name)


def test_every_workflow_is_registered() -> None:
    defined = {
        value
        for module in modules(workflows)
        for value in vars(module).values()
        if inspect.isclass(value) and workflow._Definition.from_class(value) is not None
    }
    assert defined == set(WORKFLOWS)


def test_every_activity_is_registered_under_the_name_of_its_signature() -> None:
    registered = [
        activity._Definition.must_from_callable(each) for each in registered_activities(**DEPENDENCIES)
    ]
    promised = {
        definition.name
        for protocol in (
            signatures.RecordActivities,
            signatures.MachineActivities,
            signatures.StepActivities,
            signatures.NvmlActivities,
        )
        for method in vars(protocol).values()
        if callable(method) and (definition := activity._Definition.from_callable(method)) is not None
    }
    assert sorted(str(definition.name) for definition in registered) == sorted(str(n) for n in promised)


def test_every_class_with_activities_is_in_the_registry() -> None:
    registered = {type(each.__self__) for each in registered_activities(**DEPENDENCIES)}  # type: ignore[attr-defined]
    defined = {
        value
        for module in modules(activities)
        for value in vars(module).values()
        if inspect.isclass(value)
        and not getattr(value, "_is_protocol", False)
        and any(
            callable(method) and activity._Definition.from_callable(method) is not None
            for method in vars(value).values()
        )
    }
    assert defined == registered
