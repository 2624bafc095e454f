"""Translation of the security keys of Kafka's Java clients to those of librdkafka.

Rules: a key that librdkafka does not support raises an error, which names the equivalent key or a remedy; a restriction
is never dropped silently. Errors never contain values, because these may be secrets.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from penstock.config import warn_without_effect
from penstock.errors import ConfigError

_JAAS = re.compile(r"\s*(?P<module>[\w.$]+)\s+(?:required|requisite|sufficient|optional)\b(?P<options>.*?);?\s*", re.S)
_OPTION = re.compile(r"\s*(?P<name>[\w.]+)\s*=\s*(?:\"(?P<quoted>(?:[^\"\\]|\\.)*)\"|(?P<plain>[^\s;\"]+))", re.S)

_SAME_UNDER_ANOTHER_NAME: Mapping[str, str] = {
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.key": "ssl.key.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "sasl.oauthbearer.client.credentials.client.id": "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.credentials.client.secret": "sasl.oauthbearer.client.secret",
}

_WITHOUT_EFFECT = frozenset(
    (
        "sasl.kerberos.ticket.renew.jitter",
        "sasl.kerberos.ticket.renew.window.factor",
        "sasl.login.connect.timeout.ms",
        "sasl.login.read.timeout.ms",
        "sasl.login.refresh.buffer.seconds",
        "sasl.login.refresh.min.period.seconds",
        "sasl.login.refresh.window.factor",
        "sasl.login.refresh.window.jitter",
        "sasl.login.retry.backoff.max.ms",
        "sasl.login.retry.backoff.ms",
    )
)
"""Keys for the renewal of tickets and tokens, which librdkafka does automatically."""

_REFUSED: Mapping[str, str] = {
    "sasl.client.callback.handler.class": "it is a Java class; for your own tokens set oauth_cb to a function",
    "sasl.login.callback.handler.class": "it is a Java class; for your own tokens set oauth_cb to a function",
    "sasl.login.class": "it is a Java class; for your own tokens set oauth_cb to a function",
    "security.providers": "they are Java classes; ssl.providers names those of OpenSSL",
    "ssl.enabled.protocols": "OpenSSL decides; set MinProtocol in its openssl.cnf",
    "ssl.engine.factory.class": "it is a Java class; set ssl.ca.location and ssl.certificate.location",
    "ssl.keymanager.algorithm": "OpenSSL has none; leave it out",
    "ssl.protocol": "OpenSSL decides; set MinProtocol in its openssl.cnf",
    "ssl.provider": "it is a Java provider; ssl.providers names those of OpenSSL",
    "ssl.secure.random.implementation": "OpenSSL has its own; leave it out",
    "ssl.trustmanager.algorithm": "OpenSSL has none; leave it out",
}

JAVA_KEYS = frozenset(
    (
        "sasl.jaas.config",
        "sasl.login.callback.handler.class",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.keystore.type",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.type",
        *_SAME_UNDER_ANOTHER_NAME,
        *_WITHOUT_EFFECT,
        *_REFUSED,
    )
)
"""Keys of the Java clients that `librdkafka_security` translates or refuses."""

_TOKENS_BY_HTTP = "OAuthBearerLoginCallbackHandler"
_TO_PEM = "openssl pkcs12 -in FILE.p12 -nodes -out FILE.pem (keytool -importkeystore converts a .jks to a .p12)"


def librdkafka_security(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Translate Kafka's security keys in `settings` to librdkafka's; librdkafka's own keys take precedence.

    Raises:
        ConfigError: librdkafka does not support a key; the error names the key and the equivalent.
    """
    given = dict(settings)
    found: dict[str, Any] = {}
    for translate in (_login, _trust, _identity, _others):
        found.update(translate(given))
    return {**found, **given}


def _login(given: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    handler = str(given.get("sasl.login.callback.handler.class", ""))
    if handler.endswith(_TOKENS_BY_HTTP):  # librdkafka's own behaviour if it has the URL of the endpoint
        del given["sasl.login.callback.handler.class"]
    if "sasl.oauthbearer.token.endpoint.url" in given and "oauth_cb" not in given:
        found["sasl.oauthbearer.method"] = "oidc"
    jaas = given.pop("sasl.jaas.config", None)
    return found if jaas is None else {**found, **_of_jaas(str(jaas))}


def _of_jaas(text: str) -> dict[str, Any]:
    """Return the login keys for a line of JAAS."""
    found = _JAAS.fullmatch(text)
    options: dict[str, str] = {}
    rest = "" if found is None else found["options"]
    while match := _OPTION.match(rest):
        quoted = match["quoted"]
        options[match["name"]] = match["plain"] if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
        rest = rest[match.end() :]
    if found is None or rest.strip():
        _refuse(
            "sasl.jaas.config",
            'it is not of the form `Module required name="value" ...;`; set sasl.username and sasl.password',
        )
    module = found["module"].rpartition(".")[2]
    translate = _MODULES.get(module)
    if translate is None:
        _refuse(
            "sasl.jaas.config",
            f"the login module {module} is a Java class; the keys of librdkafka are sasl.username and sasl.password, "
            "sasl.oauthbearer.* and oauth_cb, sasl.kerberos.*",
        )
    return translate(options)


def _of_password(options: Mapping[str, str]) -> dict[str, Any]:
    missing = [name for name in ("username", "password") if name not in options]
    if missing:
        _refuse("sasl.jaas.config", f"it has no {missing[0]}; librdkafka has sasl.username and sasl.password")
    return {"sasl.username": options["username"], "sasl.password": options["password"]}


def _of_token(options: Mapping[str, str]) -> dict[str, Any]:
    names = {
        "clientId": "sasl.oauthbearer.client.id",
        "clientSecret": "sasl.oauthbearer.client.secret",
        "scope": "sasl.oauthbearer.scope",
    }
    found: dict[str, Any] = {names[name]: value for name, value in options.items() if name in names}
    extensions = {name: value for name, value in options.items() if name.startswith("extension_")}
    if extensions:
        each = (f"{name.removeprefix('extension_')}={value}" for name, value in extensions.items())
        found["sasl.oauthbearer.extensions"] = ",".join(each)
    user = options.get("unsecuredLoginStringClaim_sub")
    if user is not None:
        found |= {"enable.sasl.oauthbearer.unsecure.jwt": True, "sasl.oauthbearer.config": f"principal={user}"}
    unknown = sorted(options.keys() - names.keys() - extensions.keys() - {"unsecuredLoginStringClaim_sub"})
    if unknown:
        _refuse("sasl.jaas.config", f"librdkafka has no {unknown[0]}; its keys are sasl.oauthbearer.* and oauth_cb")
    return found


def _of_ticket(options: Mapping[str, str]) -> dict[str, Any]:
    names = {"keyTab": "sasl.kerberos.keytab", "principal": "sasl.kerberos.principal"}
    found = {names[name]: value for name, value in options.items() if name in names}
    if len(found) < len(names):
        why = "librdkafka logs in with a keytab; set sasl.kerberos.keytab and sasl.kerberos.principal"
        _refuse("sasl.jaas.config", why)
    return found


_MODULES: Mapping[str, Callable[[Mapping[str, str]], dict[str, Any]]] = {
    "PlainLoginModule": _of_password,
    "ScramLoginModule": _of_password,
    "OAuthBearerLoginModule": _of_token,
    "Krb5LoginModule": _of_ticket,
}


def _trust(given: dict[str, Any]) -> dict[str, Any]:
    """Return the key for the trusted certificates."""
    location = given.pop("ssl.truststore.location", None)
    kind = _store_type(given.pop("ssl.truststore.type", None), location)
    given.pop("ssl.truststore.password", None)  # PEM files have no password
    if location is None:
        return {}
    if kind != "PEM":
        _refuse(
            "ssl.truststore.location",
            f"librdkafka reads no store of type {kind}: convert it to PEM, for example with keytool -exportcert -rfc, "
            "and set ssl.ca.location to the result",
        )
    return {"ssl.ca.location": location}


def _identity(given: dict[str, Any]) -> dict[str, Any]:
    """Return the keys for this client's certificate and private key."""
    location = given.get("ssl.keystore.location")
    kind = _store_type(given.pop("ssl.keystore.type", None), location)
    if location is None or kind == "PKCS12":  # librdkafka reads PKCS12 itself
        return {}
    if kind != "PEM":
        _refuse(
            "ssl.keystore.location",
            f"librdkafka reads no store of type {kind}: {_TO_PEM}, and set ssl.certificate.location and "
            "ssl.key.location to the result",
        )
    del given["ssl.keystore.location"]
    given.pop("ssl.keystore.password", None)
    return {"ssl.certificate.location": location, "ssl.key.location": location}


def _store_type(kind: object, location: object) -> str:
    """Return the type of a store: as configured, as its file name, or Java's default."""
    if kind is not None:
        return str(kind).upper()
    ending = str(location).rpartition(".")[2].lower()
    return {"pem": "PEM", "crt": "PEM", "p12": "PKCS12", "pfx": "PKCS12"}.get(ending, "JKS")


def _others(given: dict[str, Any]) -> dict[str, Any]:
    for key in sorted(given):
        if key in _REFUSED:
            _refuse(key, _REFUSED[key])
        if key in _WITHOUT_EFFECT:
            warn_without_effect(key, "librdkafka renews tickets and tokens automatically")
            del given[key]
    found = {name: given.pop(key) for key, name in _SAME_UNDER_ANOTHER_NAME.items() if key in given}
    algorithm = "ssl.endpoint.identification.algorithm"
    if given.get(algorithm) == "":
        given[algorithm] = "none"  # Java's clients use an empty value
    return found


def _refuse(key: str, why: str) -> NoReturn:
    raise ConfigError(f"Invalid configuration {key}: the Kafka client, librdkafka, does not do this: {why}.")
