"""NVML of machines: nvidia-ml-py and a probe, run there by the machine's own python3.

For a step whose `uses` is `nvml.facts`, whoever runs it calls `prepare_nvml` before each start and gives the
step `nvml_environment()`; when it has ended, `nvml_failure` says what failed, if it did.
"""

from activities.nvml.errors import nvml_failure
from activities.nvml.module import nvml_environment, prepare_nvml

__all__ = ["nvml_environment", "nvml_failure", "prepare_nvml"]
