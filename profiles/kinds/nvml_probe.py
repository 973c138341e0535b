"""Asks a machine's NVIDIA driver, through nvidia-ml-py, which GPUs the machine has.

This file runs on machines, as text, under whatever Python 3.6 or newer they have: no import but the standard
library's and pynvml, and no newer syntax. It prints what it found for people on standard output and writes
the same as JSON to the file BRINGUP_OUTPUT names (without one, or when called with `json`, to standard
output). It ends with 0, or with one of the statuses below and a last line `CLASS: MESSAGE` on standard error.

The JSON: {"driver": {"version", "nvml", "cuda"} or null, "gpus": [{"index", "uuid", "pciId", "model",
"memoryBytes", "mig", "serial", "ecc"}], "problem": {"class", "message"} or null}. What a driver or GPU does
not know of (`mig`, `serial`, `ecc`, `cuda`) is null. Nothing is written when a call hangs.
"""

import importlib
import json
import os
import sys
import threading
from typing import Any

# Exit statuses. 1 and 2 are Python's own, 126 and 127 those of a missing interpreter.
ABSENT, FUNCTION, LOST, HUNG, OTHER, UNEXPECTED, NO_MODULE = 20, 21, 22, 23, 24, 25, 26
WORDS = {
    ABSENT: "nvml-absent",
    FUNCTION: "nvml-function",
    LOST: "gpu-lost",
    HUNG: "nvml-hung",
    OTHER: "nvml",
    UNEXPECTED: "health",
    NO_MODULE: "internal",
}
CALL_SECONDS = 20.0
# The first call wakes every GPU where no persistence daemon keeps them awake.
INIT_PATIENCE = 3
VERSION_MISMATCH = 18
_VERSIONS_DIFFER = "the loaded driver and its library have different versions: reboot the machine"


class ProbeError(Exception):
    """What keeps a fact from being known; `status` is the exit status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


def end_hung(call: str, seconds: float) -> None:
    """Ends the process while another thread is held in a call that will never come back."""
    sys.stdout.flush()
    text = f"{WORDS[HUNG]}: {call} did not return within {seconds:g} s\n"
    os.write(2, text.encode())
    os._exit(HUNG)


class Library:
    """The driver's library behind pynvml; every call has a deadline."""

    def __init__(self, module_folder: str, seconds: float) -> None:
        sys.path.insert(0, module_folder)
        try:
            self._nvml = importlib.import_module("pynvml")
        except ImportError as error:
            raise ProbeError(NO_MODULE, f"nvidia-ml-py is not in {module_folder!r}: {error}") from None
        self._seconds = seconds

    def call(self, name: str, *arguments: object, of: str = "", patience: int = 1) -> Any:
        """The answer; raises ProbeError. `of` names the GPU for messages."""
        what = f"{name} of {of}" if of else name
        seconds = self._seconds * patience
        timer = threading.Timer(seconds, end_hung, [what, seconds])
        timer.daemon = True
        timer.start()
        try:
            return getattr(self._nvml, name)(*arguments)
        except self._nvml.NVMLError as error:
            raise self._problem(error, name, of) from None
        finally:
            timer.cancel()

    def known(self, name: str, *arguments: object, of: str = "") -> Any:
        """The answer, or None where driver or GPU has none to give; a lost GPU stays a problem."""
        try:
            return self.call(name, *arguments, of=of)
        except ProbeError as problem:
            if problem.status == LOST:
                raise
            return None

    def _problem(self, error: BaseException, name: str, of: str) -> ProbeError:
        what = f"{name} of {of}" if of else name
        nvml = self._nvml
        code = getattr(error, "value", None)
        if code == nvml.NVML_ERROR_LIBRARY_NOT_FOUND:
            return ProbeError(ABSENT, "libnvidia-ml.so.1 is not there or cannot be loaded")
        if code == nvml.NVML_ERROR_FUNCTION_NOT_FOUND:
            return ProbeError(FUNCTION, f"the driver's library has no function for {what}")
        if code == nvml.NVML_ERROR_GPU_IS_LOST:
            return ProbeError(LOST, f"{of or 'a GPU'} has fallen off the bus ({name})")
        text = f"{what}: {error} ({type(error).__name__}, code {code})"
        return ProbeError(OTHER, text + ("; " + _VERSIONS_DIFFER if code == VERSION_MISMATCH else ""))


def read_facts(library: Library, facts: "dict[str, Any]") -> None:
    """Fills `facts` as far as it gets; raises ProbeError, for lost GPUs only after the others were read."""
    library.call("nvmlInit", patience=INIT_PATIENCE)
    cuda = library.known("nvmlSystemGetCudaDriverVersion_v2")
    facts["driver"] = {
        "version": library.call("nvmlSystemGetDriverVersion"),
        "nvml": library.call("nvmlSystemGetNVMLVersion"),
        "cuda": f"{cuda // 1000}.{cuda % 1000 // 10}" if isinstance(cuda, int) else None,
    }
    lost = []
    for index in range(library.call("nvmlDeviceGetCount")):
        try:
            facts["gpus"].append(read_gpu(library, index))
        except ProbeError as problem:
            if problem.status != LOST:
                raise
            lost.append(problem.message)
    library.known("nvmlShutdown")
    if lost:
        raise ProbeError(LOST, "; ".join(lost))


def read_gpu(library: Library, index: int) -> "dict[str, Any]":
    """One GPU. Its PCI id first, so that what goes wrong next is said of a place that can be found."""
    name = f"GPU {index}"
    handle = library.call("nvmlDeviceGetHandleByIndex", index, of=name)
    pci = text(library.call("nvmlDeviceGetPciInfo", handle, of=name).busId)
    name = f"GPU {index} ({pci})"
    mig = library.known("nvmlDeviceGetMigMode", handle, of=name)
    ecc = library.known("nvmlDeviceGetEccMode", handle, of=name)
    return {
        "index": index,
        "uuid": library.call("nvmlDeviceGetUUID", handle, of=name),
        "pciId": pci,
        "model": library.call("nvmlDeviceGetName", handle, of=name),
        "memoryBytes": library.call("nvmlDeviceGetMemoryInfo", handle, of=name).total,
        "mig": {"enabled": bool(mig[0]), "pending": bool(mig[1])} if isinstance(mig, list) else None,
        "serial": library.known("nvmlDeviceGetSerial", handle, of=name),
        "ecc": bool(ecc[0]) if isinstance(ecc, list) else None,
    }


def text(value: object) -> str:
    """What pynvml gives as bytes inside of structures and as text elsewhere."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def compare(facts: "dict[str, Any]", gpus: "int | None", driver: "str | None") -> None:
    """Raises ProbeError where the machine is not as the profile's author expects; None expects nothing."""
    found = len(facts["gpus"])
    if gpus is not None and found != gpus:
        raise ProbeError(UNEXPECTED, f"{gpus} GPUs are expected, the driver sees {found}")
    version = str(facts["driver"]["version"])
    if driver is not None and version != driver and not version.startswith(driver + "."):
        raise ProbeError(UNEXPECTED, f"driver {driver} is expected, {version} is loaded")


def lines(facts: "dict[str, Any]") -> "list[str]":
    """The facts for people."""
    said = []
    if facts["driver"]:
        said.append("driver {version}, NVML {nvml}, CUDA {cuda}".format(**facts["driver"]))
    for gpu in facts["gpus"]:
        size = f"{gpu['memoryBytes'] / 2.0**30:.1f} GiB"
        said.append("GPU {index}  {model}  {size}  {pciId}  {uuid}".format(size=size, **gpu))
    return said


def main(report: str = "text", gpus: "int | None" = None, driver: "str | None" = None) -> int:
    """Reads, compares, reports; the exit status."""
    facts: dict[str, Any] = {"driver": None, "gpus": [], "problem": None}
    status, message = 0, ""
    try:
        seconds = float(os.environ.get("BRINGUP_NVML_CALL_SECONDS") or CALL_SECONDS)
        read_facts(Library(os.environ.get("BRINGUP_NVML_MODULE", ""), seconds), facts)
        compare(facts, gpus, driver)
    except ProbeError as problem:
        status, message = problem.status, problem.message
        facts["problem"] = {"class": WORDS[status], "message": message}
    path = os.environ.get("BRINGUP_OUTPUT")
    if report == "text":
        sys.stdout.write("".join(line + "\n" for line in lines(facts)))
    if report == "json" or not path:
        sys.stdout.write(json.dumps(facts, sort_keys=True) + "\n")
    else:
        with open(path, "a") as output:
            output.write(json.dumps(facts, sort_keys=True) + "\n")
    sys.stdout.flush()
    if message:
        sys.stderr.write(f"{WORDS[status]}: {message}\n")
    return status
