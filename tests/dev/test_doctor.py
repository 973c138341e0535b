"""`bringup doctor` and the top of the command line."""

import json
import os
import socket
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cli.doctor import Wanted, examine
from cli.main import app

runner = CliRunner()


def test_a_taken_port_is_missing_with_what_to_do_about_it(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        ports = ["--api-port", port, "--temporal-port", "0", "--ui-port", "0"]
        result = runner.invoke(
            app, ["doctor", "--machines", "0", "--data-dir", str(tmp_path / "data"), *ports, "-o", "json"]
        )
    assert result.exit_code == 1
    answer = json.loads(result.stdout)
    assert answer["ok"] is False
    [missing] = [check for check in answer["checks"] if not check["ok"]]
    assert missing["name"] == "port for --api-port"
    assert "choose another port with --api-port" in missing["advice"]
    assert not (tmp_path / "data").exists()


def test_all_is_well_without_machines(tmp_path: Path) -> None:
    ports = ["--api-port", "0", "--temporal-port", "0", "--ui-port", "0"]
    result = runner.invoke(app, ["doctor", "--machines", "0", "--data-dir", str(tmp_path), *ports])
    assert result.exit_code == 0, result.stdout
    assert "PostgreSQL" in result.stdout


def test_without_root_machines_are_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    checks = examine(Wanted(tmp_path, {}, machines=4))
    root = next(check for check in checks if check.name == "root")
    assert not root.ok
    assert "--machines 0" in root.advice
    assert all(check.name != "root" for check in examine(Wanted(tmp_path, {}, machines=0)))


def test_a_program_that_is_not_installed_names_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cli.doctor._MACHINE_PROGRAMS", {"no-such-program": "no-such-package"})
    checks = examine(Wanted(tmp_path, {}, machines=1))
    [missing] = [check for check in checks if check.name == "no-such-program"]
    assert not missing.ok
    assert "apt-get install no-such-package" in missing.advice


def test_help_teaches_with_examples_and_the_version_is_printed() -> None:
    assert "bringup dev --machines 40" in runner.invoke(app, ["dev", "--help"]).stdout
    assert "bringup doctor -o json" in runner.invoke(app, ["doctor", "--help"]).stdout
    assert runner.invoke(app, ["--version"]).stdout.startswith("bringup 0.")
