"""The benchmark of fan-out, small: that it measures what it says. Its figures are not judged here."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.fanout.recipe import NAMES
from tests.fixtures.dev_stack import ROOT

pytestmark = pytest.mark.system


@pytest.mark.skipif(os.geteuid() != 0, reason="machines need root")
def test_a_run_on_two_machines_reports_both_tools_and_their_ratio(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    command = [sys.executable, "-m", "bench.fanout", "--machines=2", "--peers=paramiko", f"--json={report}"]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | {"TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr

    found = json.loads(report.read_text())
    assert found["steps"] == list(NAMES)
    samples = {sample["tool"]: sample for sample in found["samples"]}
    assert sorted(samples) == ["bringup", "paramiko"]
    for sample in samples.values():
        assert (sample["machines"], sample["round"]) == (2, 0)
        assert min(sample["wall"], sample["own"], sample["on_machines"], sample["host"]) > 0
    ours = samples["bringup"]
    assert set(ours["roles"]) == {"api", "worker", "temporal", "postgres"}
    assert ours["own"] == pytest.approx(sum(ours["roles"].values()))
    times = [ours["details"][name] for name in ("answered 202", "first step began", "last step ended")]
    assert times == sorted(times)
    assert times[-1] <= ours["wall"]
    (ratio,) = found["ratios"]
    assert (ratio["machines"], ratio["peer"]) == (2, "paramiko")
    assert ratio["wall"] == pytest.approx(ours["wall"] / samples["paramiko"]["wall"])

    assert "Where bringup's processor time goes" in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["report.json"]


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("--machines=0,10", "must be a whole number from 1 to 250, not '0'"),
        ("--machines=ten", "must be a whole number from 1 to 250, not 'ten'"),
        ("--peers=fabric", "no such peer: fabric"),
        ("--rounds=0", "must be a whole number from 1 to 100, not '0'"),
    ],
)
def test_a_wrong_option_is_refused_before_anything_starts(option: str, said: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench.fanout", option], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert said in done.stderr
