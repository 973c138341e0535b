"""Machines made on this host: real OpenSSH servers in namespaces over an overlay of the host's root."""

from providers.sandbox.machine import SandboxMachine
from providers.sandbox.provider import SandboxProvider
from providers.sandbox.site import SandboxSite

__all__ = ["SandboxMachine", "SandboxProvider", "SandboxSite"]
