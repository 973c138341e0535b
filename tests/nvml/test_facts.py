"""What a machine's driver says, read with the real nvidia-ml-py over real SSH."""

from __future__ import annotations

import ast
import re
import subprocess
import time
from pathlib import Path

import pytest

from activities.nvml import prepare_nvml
from activities.nvml.client import read_facts
from activities.nvml.module import module_folder, source
from activities.supervisor.client import Supervisor
from domain.failures import POLICIES, FailureClass
from profiles.kinds import nvml_probe
from providers.base import ProviderError
from providers.sandbox import SandboxSite
from providers.sandbox.gpus import library
from providers.sandbox.gpus.machine_gpus import MODEL
from providers.sandbox.host import CommandError
from tests.nvml.conftest import GPUS, LIBRARY, GpuMachine, connect

pytestmark = pytest.mark.system

# As little of sudo as is needed: `-n`, then a command as root. Hosts of the tests need not have the real one.
SUDO = """\
#include <string.h>
#include <unistd.h>
int main(int count, char **words) {
  if (count < 3 || strcmp(words[1], "-n") || setgid(0) || setuid(0)) return 1;
  execvp(words[2], words + 2);
  return 127;
}
"""


def test_driver_and_every_gpu_are_known(machine: GpuMachine) -> None:
    reading = machine.read()
    assert reading.failure is None
    driver = reading.facts.driver
    assert driver is not None
    assert (driver.version, driver.nvml, driver.cuda) == ("550.54.15", "12.550.54.15", "12.4")
    gpus = reading.facts.gpus
    assert [gpu.index for gpu in gpus] == list(range(GPUS))
    assert {(gpu.model, gpu.memory_bytes) for gpu in gpus} == {(MODEL.name, MODEL.memory_bytes)}
    for distinct in ({gpu.uuid for gpu in gpus}, {gpu.pci_id for gpu in gpus}, {gpu.serial for gpu in gpus}):
        assert len(distinct) == GPUS
    assert all(re.fullmatch(r"GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", gpu.uuid) for gpu in gpus)
    assert gpus[0].pci_id == "00000000:1B:00.0"
    assert gpus[0].mig is not None
    assert not gpus[0].mig.enabled
    assert gpus[0].ecc


def test_gpus_keep_their_names_through_reboot_and_reimage_and_differ_between_machines(
    gpu_site: SandboxSite,
) -> None:
    seen = []
    gpu_site.create("two", 2)
    try:
        for change in (gpu_site.power_on, gpu_site.reboot, gpu_site.reimage):
            change("two")
            connection = connect(gpu_site.machine("two"))
            reading = read_facts(connection, python3="/usr/bin/python3", key="a", token=1)
            connection.close()
            assert reading is not None
            assert reading.failure is None
            seen.append([gpu.uuid for gpu in reading.facts.gpus])
    finally:
        gpu_site.destroy("two")
    assert len(seen[0]) == 2
    assert seen[0] == seen[1] == seen[2]


def test_the_module_is_put_there_once_whole_and_for_root_only(machine: GpuMachine) -> None:
    machine.shell(f"rm -rf {module_folder()}")
    path = prepare_nvml(machine.connection)
    before = machine.shell(f"stat -c '%i %Y %a %s' {path}")
    assert before.split()[2:] == ["600", str(len(source()))]
    assert prepare_nvml(machine.connection) == path
    assert machine.shell(f"stat -c '%i %Y %a %s' {path}") == before
    machine.shell(f"truncate -s 1000 {path}")
    prepare_nvml(machine.connection)
    assert machine.connection.exec(f"cat {path}").stdout == source()


def test_an_absent_library_is_its_own_class(machine: GpuMachine) -> None:
    machine.shell(f"rm {LIBRARY}")
    reading = machine.read()
    assert reading.failure is not None
    assert reading.failure[0] is FailureClass.NVML_ABSENT
    assert "libnvidia-ml.so.1" in reading.failure[1]
    assert reading.facts.driver is None


@pytest.mark.parametrize("name", ["nvmlDeviceGetMigMode", "nvmlDeviceGetSerial", "nvmlDeviceGetEccMode"])
def test_a_fact_that_an_old_driver_does_not_know_is_null(machine: GpuMachine, name: str) -> None:
    machine.library(without=[name])
    reading = machine.read()
    assert reading.failure is None
    fact = {"nvmlDeviceGetMigMode": "mig", "nvmlDeviceGetSerial": "serial", "nvmlDeviceGetEccMode": "ecc"}[
        name
    ]
    for gpu in reading.facts.gpus:
        assert {field for field, value in gpu if value is None} == {fact}


@pytest.mark.parametrize("name", ["nvmlInitWithFlags", "nvmlDeviceGetUUID", "nvmlDeviceGetMemoryInfo"])
def test_a_missing_function_that_is_needed_is_its_own_class(machine: GpuMachine, name: str) -> None:
    machine.library(without=[name])
    failed, message = machine.failure()
    assert failed is FailureClass.NVML_FUNCTION
    assert "has no function" in message


def test_a_lost_gpu_is_named_and_the_others_are_known(machine: GpuMachine) -> None:
    machine.configure("lost 3", "fail nvmlDeviceGetMemoryInfo 15 5")
    reading = machine.read()
    assert reading.failure is not None
    assert reading.failure[0] is FailureClass.GPU_LOST
    assert "GPU 3 has fallen off the bus" in reading.failure[1]
    assert "GPU 5 (00000000:C3:00.0) has fallen off the bus" in reading.failure[1]
    assert [gpu.index for gpu in reading.facts.gpus] == [0, 1, 2, 4, 6, 7]


@pytest.mark.parametrize(
    ("name", "named"),
    [
        ("nvmlInitWithFlags", "nvmlInit did not return"),
        ("nvmlDeviceGetMemoryInfo 6", "nvmlDeviceGetMemoryInfo of GPU 6 (00000000:D1:00.0) did not return"),
    ],
)
def test_a_call_that_never_returns_is_named_within_its_deadline_and_nothing_is_left(
    machine: GpuMachine, name: str, named: str
) -> None:
    machine.configure(f"hang {name}")
    begun = time.monotonic()
    failed, message = machine.failure(call_seconds=0.3)
    assert time.monotonic() - begun < 5
    assert failed is FailureClass.NVML_HUNG
    assert named in message
    assert machine.probes() == []


def test_a_probe_that_outlives_its_own_deadline_is_ended_by_the_supervisor(machine: GpuMachine) -> None:
    machine.configure("hang nvmlDeviceGetName")
    failed, message = machine.failure(call_seconds=60, timeout_seconds=1)
    assert failed is FailureClass.NVML_HUNG
    assert "within its timeout; nothing of it is left" in message
    assert machine.probes() == []


def test_any_other_error_is_given_by_name_and_code(machine: GpuMachine) -> None:
    machine.configure("fail nvmlInitWithFlags 18")
    failed, message = machine.failure()
    assert failed is FailureClass.NVML
    assert "NVMLError_LibRmVersionMismatch, code 18" in message
    assert "reboot the machine" in message


def test_a_driver_that_is_not_loaded_says_so(machine: GpuMachine) -> None:
    machine.shell("rm /etc/simulated-gpus")
    assert machine.failure()[0] is FailureClass.NVML
    assert "code 9" in machine.failure()[1]


def test_a_library_that_crashes_is_a_failure_of_nvml(machine: GpuMachine) -> None:
    built = machine.site.directory / "crash.so"
    program = "int nvmlInitWithFlags(int f) { return *(volatile int *)0 + f; }"
    words = ["gcc", "-shared", "-fPIC", "-w", "-x", "c", "-", "-o", str(built)]
    subprocess.run(words, input=program, text=True, check=True)
    machine.connection.exec(f"rm {LIBRARY}; cat > {LIBRARY}", built.read_bytes())
    assert machine.failure() == (
        FailureClass.NVML,
        "the probe was killed by signal 11: the driver's library crashed",
    )


def test_a_machine_without_python_says_what_to_install(machine: GpuMachine) -> None:
    reading = read_facts(machine.connection, python3=None, key="none", token=1)
    assert reading is not None
    assert reading.failure is not None
    assert reading.failure[0] is FailureClass.VALIDATION
    assert "install python3" in reading.failure[1]
    gone = read_facts(machine.connection, python3="/usr/bin/python9", key="gone", token=1)
    assert gone is not None
    assert gone.failure == reading.failure


def test_a_user_other_than_root_reads_them_through_sudo(machine: GpuMachine, tmp_path: Path) -> None:
    (tmp_path / "sudo.c").write_text(SUDO)
    subprocess.run(["gcc", "-o", str(tmp_path / "sudo"), str(tmp_path / "sudo.c")], check=True)
    put = "cat > /usr/local/bin/sudo && chmod 4755 /usr/local/bin/sudo"
    assert machine.connection.exec(put, (tmp_path / "sudo").read_bytes()).exit_status == 0
    machine.shell(f"rm -rf {module_folder()}; useradd --password '*' --create-home --shell /bin/sh joe")
    machine.shell("cp -r /root/.ssh /home/joe/ && chown -R joe: /home/joe/.ssh")
    as_joe = connect(machine.site.machine(machine.name), user="joe")
    try:
        assert as_joe.exec("id -un").stdout == b"joe\n"
        reading = read_facts(as_joe, python3="/usr/bin/python3", key="joe", token=1)
    finally:
        as_joe.close()
        machine.shell("userdel --remove joe 2>/dev/null; rm /usr/local/bin/sudo")
    assert reading is not None
    assert reading.failure is None
    assert len(reading.facts.gpus) == GPUS


def test_asking_again_under_the_same_key_gives_the_same_answer_without_a_second_run(
    machine: GpuMachine,
) -> None:
    first = read_facts(machine.connection, python3="/usr/bin/python3", key="same", token=1)
    machine.shell(f"rm {LIBRARY}")
    again = read_facts(machine.connection, python3="/usr/bin/python3", key="same", token=1)
    assert first == again
    Supervisor(machine.connection).purge()


def test_a_machine_has_the_gpus_it_was_made_with(gpu_site: SandboxSite, machine: GpuMachine) -> None:
    assert gpu_site.machine(machine.name).gpus == GPUS
    with pytest.raises(ProviderError, match="0 to 64 GPUs"):
        gpu_site.create("many", 65)


def test_without_a_compiler_the_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "COMMAND_PATH", str(tmp_path))
    with pytest.raises(CommandError, match="apt-get install gcc libc6-dev"):
        library.build(tmp_path)


def test_the_library_is_compiled_once_for_each_variant(tmp_path: Path) -> None:
    whole = library.build(tmp_path)
    made = whole.stat().st_mtime_ns
    assert library.build(tmp_path) == whole
    assert whole.stat().st_mtime_ns == made
    assert library.build(tmp_path, ["nvmlDeviceGetName"]) != whole
    exported = subprocess.run(
        ["nm", "-D", "--defined-only", str(whole)], capture_output=True, text=True, check=True
    )
    names = {line.split()[2] for line in exported.stdout.splitlines()}
    assert {"nvmlInitWithFlags", "nvmlDeviceGetName"} <= names
    assert all(name.startswith("nvml") for name in names)


def test_the_probe_is_python_3_6_and_each_of_its_ends_has_a_class_with_advice() -> None:
    text = Path(nvml_probe.__file__).read_text()
    ast.parse(text, feature_version=(3, 6))
    for status, word in nvml_probe.WORDS.items():
        assert 20 <= status < 30
        assert POLICIES[FailureClass(word)].action
