"""The TLS settings of a connection, from librdkafka's configuration keys.

Rule: a key that restricts trust, but that Python's ssl module does not support, is refused. Errors never contain
values, because these may be secrets.
"""

from __future__ import annotations

import ssl
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from penstock.errors import ConfigError

_UNSUPPORTED: Final[Mapping[str, str]] = {
    "ssl.keystore.location": "convert the store with `openssl pkcs12 -in FILE.p12 -nodes -out FILE.pem`, and set "
    "ssl.certificate.location and ssl.key.location",
    "ssl.ca.certificate.stores": "set ssl.ca.location to a file of PEM",
    "ssl.curves.list": "set Groups in openssl.cnf",
    "ssl.sigalgs.list": "set SignatureAlgorithms in openssl.cnf",
    "ssl.engine.id": "set ssl.certificate.location and ssl.key.location",
    "ssl.engine.location": "set ssl.certificate.location and ssl.key.location",
    "ssl.providers": "set them in openssl.cnf",
}
"""Keys of librdkafka without a counterpart in Python's ssl module, with an alternative."""

_FALSE: Final = ("false", "0", "f")


def tls_context(settings: Mapping[str, Any]) -> ssl.SSLContext:
    """Return the TLS context of a client.

    Args:
        settings: the settings of the client, under librdkafka's names.

    Raises:
        ConfigError: a key has no counterpart, or a file cannot be used; the error names the key.
    """
    for key, instead in _UNSUPPORTED.items():
        if settings.get(key) not in (None, ""):
            raise ConfigError(f"Invalid configuration {key}: Penstock's own connections cannot follow it: {instead}.")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    names_matter = str(settings.get("ssl.endpoint.identification.algorithm", "https")).lower() == "https"
    is_verified = str(settings.get("enable.ssl.certificate.verification", True)).lower() not in _FALSE
    context.check_hostname = names_matter and is_verified
    context.verify_mode = ssl.CERT_REQUIRED if is_verified else ssl.CERT_NONE
    _trust(context, settings)
    _identify(context, settings)
    if ciphers := settings.get("ssl.cipher.suites"):
        _checked("ssl.cipher.suites", lambda: context.set_ciphers(str(ciphers)))
    return context


def trusted_by(context: ssl.SSLContext, location: object, pem: object, key: str) -> None:
    """Trust the certificates of a path, a PEM text, or by default the system.

    Args:
        context: the TLS context to change.
        location: the path of a file or directory, None without a path.
        pem: the PEM text, None without a text.
        key: the configuration key of the path.

    Raises:
        ConfigError: the certificates cannot be read.
    """
    if pem:
        _checked(f"{key.rpartition('.')[0]}.pem", lambda: context.load_verify_locations(cadata=str(pem)))
    elif location and location != "probe":
        path = Path(str(location))
        kind = "capath" if path.is_dir() else "cafile"
        _checked(key, lambda: context.load_verify_locations(**{kind: str(path)}))
    else:
        context.load_default_certs()


def _trust(context: ssl.SSLContext, settings: Mapping[str, Any]) -> None:
    trusted_by(context, settings.get("ssl.ca.location"), settings.get("ssl.ca.pem"), "ssl.ca.location")
    if revoked := settings.get("ssl.crl.location"):
        _checked("ssl.crl.location", lambda: context.load_verify_locations(cafile=str(revoked)))
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF


def _identify(context: ssl.SSLContext, settings: Mapping[str, Any]) -> None:
    """Set the certificate that identifies this client to brokers, and its key."""
    password = settings.get("ssl.key.password")
    location = settings.get("ssl.certificate.location")
    if location:
        key = settings.get("ssl.key.location")
        _checked(
            "ssl.certificate.location",
            # Without a password, OpenSSL would prompt for one in the terminal.
            lambda: context.load_cert_chain(str(location), None if key is None else str(key), str(password or "")),
        )
        return
    certificate = settings.get("ssl.certificate.pem")
    if certificate:
        # The ssl module reads keys only from files.
        with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
            file.write(f"{settings.get('ssl.key.pem', '')}\n{certificate}\n")
            file.flush()
            _checked("ssl.certificate.pem", lambda: context.load_cert_chain(file.name, None, str(password or "")))


def _checked(key: str, load: Any) -> None:
    try:
        load()
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        reason = error.strerror if isinstance(error, OSError) and error.strerror else type(error).__name__
        raise ConfigError(f"Invalid configuration {key}: it cannot be used: {reason}.") from None
