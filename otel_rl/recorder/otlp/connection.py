"""The variables `OTEL_EXPORTER_OTLP_*` of one signal, parsed according to the OpenTelemetry specification.

An invalid address or an unusable file raises an error at the start of the run. Invalid numbers and names are ignored
with a warning, as the specification requires.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal
from urllib.parse import unquote, urlsplit

import msgspec

from otel_rl.recorder.errors import SettingsError
from otel_rl.recorder.errors.occasional import Occasional
from otel_rl.recorder.errors.sinks import log_of

if TYPE_CHECKING:
    from collections.abc import Mapping

_warn = Occasional(log_of(__name__)).warn
Signal = Literal["TRACES", "LOGS", "METRICS"]
PROTOCOLS = ("http/protobuf", "http/json", "grpc")
_TIMEOUT_S = 10.0
"""The default timeout of the specification, in seconds."""
_SECONDS_BELOW_MS = 100
"""A timeout below this many milliseconds is read as seconds, as opentelemetry-python reads it."""
_GRPC_SCHEMES = ("dns", "ipv4", "ipv6", "unix", "unix-abstract", "vsock", "xds")
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110, "token"
_HEADER_VALUE = re.compile(r"[\t -~]*")


class Connection(msgspec.Struct, frozen=True, kw_only=True):
    """The connection of one signal."""

    signal: Signal  # the signal
    endpoint: str  # the URL of the signal over HTTP; the target of the channel over gRPC
    secure: bool  # if true, the connection is encrypted
    protocol: str = PROTOCOLS[0]  # the encoding and transport of requests; "stdout" prints them
    headers: dict[str, str] = {}
    """Headers of every request, with names in lower case. They hold secrets and must not be logged."""
    timeout: float | None = _TIMEOUT_S  # timeout of a request in seconds; `None` for no limit
    compression: str = "none"  # compression of the bodies
    certificate: str = ""  # file with the trusted certificate authorities; empty for the default ones
    client_certificate: str = ""  # file with the client certificate; empty for none
    client_key: str = ""  # file with the key of the client certificate
    proxies: bool = True  # if true, the usual variables (`HTTPS_PROXY`, `NO_PROXY`, …) select a proxy

    @property
    def address(self) -> str:
        """The endpoint without user, password and query, for logs."""
        parts = urlsplit(self.endpoint)
        if parts.scheme not in ("http", "https"):
            return self.endpoint
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def connection(environ: Mapping[str, str], signal: Signal) -> Connection:
    """Read the connection of a signal from the environment; variables of the signal win over general ones.

    Raises:
        SettingsError: An address cannot be parsed, or a file cannot be used.
    """

    def find(option: str) -> tuple[str, str]:
        names = (f"OTEL_EXPORTER_OTLP_{signal}_{option}", f"OTEL_EXPORTER_OTLP_{option}")
        return next(((name, environ[name].strip()) for name in names if environ.get(name, "").strip()), (names[1], ""))

    protocol = one_of(*find("PROTOCOL"), PROTOCOLS)
    compressions = ("none", "gzip") if protocol == "grpc" else ("none", "gzip", "deflate")
    if protocol == "grpc":
        endpoint, secure = _grpc_target(*find("ENDPOINT"), insecure=_is_true(*find("INSECURE")))
    else:
        endpoint, secure = _url(*find("ENDPOINT"), signal)
    certificate, client_certificate, client_key = map(find, ("CERTIFICATE", "CLIENT_CERTIFICATE", "CLIENT_KEY"))
    check_files(*certificate, client_certificate, client_key)
    return Connection(
        signal=signal,
        endpoint=endpoint,
        secure=secure,
        protocol=protocol,
        headers=_headers(*find("HEADERS")),
        timeout=_seconds(*find("TIMEOUT")),
        compression=one_of(*find("COMPRESSION"), compressions),
        certificate=certificate[1],
        client_certificate=client_certificate[1],
        client_key=client_key[1],
    )


def check_files(
    name: str,
    certificate: str,
    client_certificate: tuple[str, str] = ("", ""),
    client_key: tuple[str, str] = ("", ""),
) -> None:
    """Check that the files of a TLS connection exist, are readable and have the right content.

    Args:
        name: The name of the setting for the certificate authorities.
        certificate: The file with the certificate authorities; empty for none.
        client_certificate: Name and value of the setting for the client certificate.
        client_key: Name and value of the setting for its key.

    Raises:
        SettingsError: The message names the setting, the file and the reason.
    """
    if not (certificate or client_certificate[1] or client_key[1]):
        return
    import ssl  # most trainers need not import it

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if certificate:
        try:
            context.load_verify_locations(certificate)
        except (OSError, ValueError) as error:
            raise _unusable(name, certificate, error, "certificates of authorities in PEM") from None
    if client_key[1] and not client_certificate[1]:
        missing = client_key[0].replace("_KEY", "_CERTIFICATE")
        raise SettingsError(f"{client_key[0]} is set without {missing}: set both, or neither")
    if client_certificate[1]:
        key = client_key if client_key[1] else client_certificate
        for setting, path in (client_certificate, key):
            try:
                with open(path, "rb"):  # noqa: PTH123 - the path is the user's text
                    pass
            except OSError as error:
                raise _unusable(setting, path, error, "a file that can be read") from None
        try:
            context.load_cert_chain(client_certificate[1], key[1], password=lambda: b"")
        except (OSError, ValueError) as error:
            both = f"a certificate and its key in PEM, without a password (the key is {key[1]!r})"
            raise _unusable(*client_certificate, error, both) from None


def _unusable(name: str, path: str, error: Exception, expected: str) -> SettingsError:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return SettingsError(f"{name}={path!r}: {reason}; expected {expected}")


def _url(name: str, text: str, signal: Signal) -> tuple[str, bool]:
    text = text or "http://localhost:4318"
    if not _is_http(text):
        raise SettingsError(f"{name}={_shown(text)!r}: expected a URL such as http://localhost:4318")
    parts = urlsplit(text)
    if f"_{signal}_" not in name:
        parts = parts._replace(path=f"{parts.path.rstrip('/')}/v1/{signal.lower()}")
    return parts._replace(path=parts.path or "/", fragment="").geturl(), parts.scheme == "https"


def _grpc_target(name: str, text: str, *, insecure: bool) -> tuple[str, bool]:
    """Return the target of a channel, and whether it is encrypted: by the scheme, else by `insecure`."""
    text = text or "http://localhost:4317"
    if _is_http(text):
        parts = urlsplit(text)
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
        return f"{host}:{parts.port or (443 if parts.scheme == 'https' else 80)}", parts.scheme == "https"
    host, _, port = text.rpartition(":")
    scheme = text.partition(":")[0].lower()
    has_port = host and port.isdecimal() and len(port) < 6 and int(port) < 1 << 16 and not re.search(r"[\s/@]", text)
    if scheme in _GRPC_SCHEMES or has_port or re.fullmatch(r"[\w.-]+", text):
        return text, not insecure
    raise SettingsError(f"{name}={_shown(text)!r}: expected a URL such as http://localhost:4317, or host:port")


def _is_http(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0 and " " not in text
    except ValueError:  # an invalid port, or unbalanced brackets
        return False


def _shown(text: str) -> str:
    before, at, after = text.rpartition("@")
    return f"{before.partition('//')[0]}//…@{after}" if at and "//" in before else text


def _headers(name: str, text: str) -> dict[str, str]:
    headers = {}
    for n, entry in enumerate(part for part in text.split(",") if part.strip()):
        key, equals, value = (unquote(part).strip() for part in entry.partition("="))
        if not equals or not _HEADER_NAME.fullmatch(key) or not _HEADER_VALUE.fullmatch(value):
            _warn(f"{name}: ignoring invalid entry {n + 1}: must be name=value, with the value percent-encoded")
            continue
        headers[key.lower()] = value
    return headers


def _seconds(name: str, text: str) -> float | None:
    if not text:
        return _TIMEOUT_S
    if not re.fullmatch(r"\d{1,12}(\.\d+)?", text):
        _warn(f"invalid {name}={text!r}: must be a number of milliseconds; using the default, 10000")
        return _TIMEOUT_S
    value = float(text)
    if value == 0:
        return None
    if value < _SECONDS_BELOW_MS:
        _warn(f"{name}={text} is used as {text} s, as in opentelemetry-python; in milliseconds, set {value * 1000:g}")
        return value
    return value / 1000


def _is_true(name: str, text: str) -> bool:
    if text.lower() not in ("", "true", "false"):
        _warn(f"invalid {name}={text!r}: must be true or false; using false")
    return text.lower() == "true"


def one_of(name: str, text: str, known: tuple[str, ...]) -> str:
    """Return the known value that a variable has, in any case; otherwise the first one, with a warning."""
    value = text.strip().lower()
    if value and value not in known:
        _warn(f"invalid {name}={text!r}: must be one of {', '.join(known)}; using {known[0]}")
    return value if value in known else known[0]
