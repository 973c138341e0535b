"""From nothing to an authenticated transport, within one deadline."""

from __future__ import annotations

import logging
import socket
import time

import paramiko

from activities.ssh.errors import AuthError, ChannelError, ConnectError, HostKeyError, SshError
from activities.ssh.keys import host_key_text, parse_private_key, pinned_parts
from activities.ssh.target import SshTarget

# Failures are typed and raised; paramiko would log them a second time, with tracebacks.
logging.getLogger("paramiko").addHandler(logging.NullHandler())
logging.getLogger("paramiko").propagate = False
logging.getLogger("paramiko").setLevel(logging.CRITICAL)

KEEPALIVE_S = 15
# Unacknowledged data for this long ends the connection: keepalives make silence visible, this makes it fatal.
TCP_USER_TIMEOUT_MS = 30_000
_CIPHERS_FIRST = ("aes128-gcm@openssh.com", "aes128-ctr")


def open_transport(
    target: SshTarget, deadline_s: float, opened: socket.socket | None = None
) -> paramiko.Transport:
    """Connect, check the host key, authenticate. Raises ConnectError, HostKeyError or AuthError.

    `opened`, a connection to the machine that nothing was read from yet, is used where it is given.
    """
    begun = time.monotonic()
    try:
        key = parse_private_key(target.private_key)
    except SshError:
        if opened is not None:
            opened.close()
        raise
    sock = _configured(opened or _open_socket(target, deadline_s))
    try:
        transport = paramiko.Transport(sock)
    except (paramiko.SSHException, OSError) as error:
        sock.close()
        raise ConnectError(_text(target, "starting SSH", begun, error)) from error
    try:
        _negotiate(transport, target, begun, deadline_s)
        _authenticate(transport, target, key, begun, deadline_s)
    except BaseException:
        transport.close()
        raise
    transport.set_keepalive(KEEPALIVE_S)
    return transport


def _text(target: SshTarget, tried: str, begun: float, cause: object) -> str:
    took = f"{time.monotonic() - begun:.2f} s"
    return f"{target.endpoint}: {tried} failed after {took}: {cause or type(cause).__name__}"


def _open_socket(target: SshTarget, deadline_s: float) -> socket.socket:
    begun = time.monotonic()
    try:
        sock = socket.create_connection((target.address, target.port), timeout=deadline_s)
    except TimeoutError as error:
        raise ConnectError(_text(target, "TCP connect", begun, "no answer")) from error
    except (OSError, UnicodeError) as error:
        raise ConnectError(_text(target, "TCP connect", begun, error)) from error
    return sock


def _configured(sock: socket.socket) -> socket.socket:
    sock.settimeout(None)
    # paramiko never sets this; without it each small exchange waits some 40 ms for a delayed acknowledgement.
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, TCP_USER_TIMEOUT_MS)
    return sock


def _negotiate(transport: paramiko.Transport, target: SshTarget, begun: float, deadline_s: float) -> None:
    left = max(0.1, deadline_s - (time.monotonic() - begun))
    transport.banner_timeout = left
    transport.handshake_timeout = left
    transport.use_compression(False)
    options = transport.get_security_options()
    options.ciphers = (*_CIPHERS_FIRST, *(c for c in options.ciphers if c not in _CIPHERS_FIRST))
    if target.host_key is not None:
        options.key_types = _pinned_types(target.host_key, target.endpoint, tuple(options.key_types))
    try:
        transport.start_client(timeout=left)
    except paramiko.ssh_exception.IncompatiblePeer as error:
        if target.host_key is not None and "host key" in str(error):
            raise HostKeyError(_text(target, "host key check", begun, error)) from error
        raise ConnectError(_text(target, "SSH negotiation", begun, error)) from error
    except (paramiko.SSHException, OSError, EOFError) as error:
        raise ConnectError(_text(target, "SSH negotiation", begun, error)) from error
    if not transport.initial_kex_done:
        # At its own time limit paramiko just returns.
        raise ConnectError(_text(target, "SSH negotiation", begun, "no answer"))
    if target.host_key is not None:
        seen = host_key_text(transport.get_remote_server_key())
        if tuple(seen.split()) != pinned_parts(target.host_key, target.endpoint):
            raise HostKeyError(
                f"{target.endpoint}: the machine shows host key '{seen}', pinned is '{target.host_key}'; "
                "refused before anything was sent"
            )


def _pinned_types(pinned: str, endpoint: str, offered: tuple[str, ...]) -> tuple[str, ...]:
    """Ask for the pinned kind of key only: a machine has several, and any other proves nothing."""
    kind = pinned_parts(pinned, endpoint)[0]
    wanted = ("rsa-sha2-512", "rsa-sha2-256") if kind == "ssh-rsa" else (kind,)
    usable = tuple(name for name in wanted if name in offered)
    if not usable:
        raise HostKeyError(f"{endpoint}: pinned host key type '{kind}' is not supported")
    return usable


def _authenticate(
    transport: paramiko.Transport, target: SshTarget, key: paramiko.PKey, begun: float, deadline_s: float
) -> None:
    transport.auth_timeout = max(0.1, deadline_s - (time.monotonic() - begun))
    tried = f"login as {target.user} with a {key.get_name()} key"
    try:
        left = transport.auth_publickey(target.user, key)
    except (paramiko.SSHException, OSError, EOFError) as error:
        raise _authentication_failure(transport, _text(target, tried, begun, error), error) from error
    if left:
        raise AuthError(_text(target, tried, begun, f"the machine also wants {', '.join(left)}"))


def _authentication_failure(transport: paramiko.Transport, text: str, error: Exception) -> SshError:
    """A refusal is final; a machine that fell silent or hung up during the login is worth another try."""
    if isinstance(error, paramiko.AuthenticationException) and transport.is_active():
        if "timeout" in str(error).lower():
            return ConnectError(text)
        return AuthError(text)
    if isinstance(error, paramiko.BadAuthenticationType) or "bad signature" in str(error).lower():
        return AuthError(text)
    return ChannelError(text)
