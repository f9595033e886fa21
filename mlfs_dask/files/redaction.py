"""How messages, logs, records, stores and pages call files: without secrets in URLs, which are never repeated."""

from __future__ import annotations

import re

_URL = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://[^\s'\"<>\\]*")
# A password may hold slashes, quotes, @ and line ends. A colon before digits and a slash, or an end, is that of a port.
_PASSWORD = re.compile(r"://[^/\s@:'\"]*:(?!\d+(?:/|['\"]?(?:[\s,;:)\]]|$)))\S*(?:[\r\n]+\S*)*@")
# On the web a name alone can be a token; elsewhere it may be a container, as in abfs://container@account.
_TOKEN = re.compile(r"(https?|ftp)://[^/\s@:]+@")
_PARAMETER = re.compile(r"([?&#;][^=&#;]+=)[^&#;]*")
_HIDDEN = "***"

#: Names by which people know files, by path.
_names: dict[str, str] = {}


def call_file(path: str, name: str) -> None:
    """Have this process call a file by another name, such as what was read into it.

    Examples
    --------
    >>> call_file("/tmp/mlfs-5f/standard-input", "standard input")
    >>> redact("/tmp/mlfs-5f/standard-input, line 2: a number was expected")
    'standard input, line 2: a number was expected'
    """
    _names[path] = name


def redact(text: str) -> str:
    """A text in which the URLs have no user names with passwords, and no values of parameters; and files their names.

    Signatures and tokens are values of parameters; which ones, every provider calls in its own way.

    Examples
    --------
    >>> redact("s3://AKIA:wJal/rX@bucket/x.zarr: there is no such store")
    's3://***@bucket/x.zarr: there is no such store'
    >>> redact("s3://u:it's@4\\n2/@bucket/x: absent"), redact("'s3://host:80', of a@b")
    ('s3://***@bucket/x: absent', "'s3://host:80', of a@b")
    >>> redact("https://host:8443/a.csv?X-Amz-Signature=5f2e&v=2"), redact("abfs://data@account/x.zarr")
    ('https://host:8443/a.csv?X-Amz-Signature=***&v=***', 'abfs://data@account/x.zarr')
    """
    for path, name in _names.items():
        text = text.replace(path, name)
    if "://" not in text:
        return text
    text = _PASSWORD.sub(f"://{_HIDDEN}@", text)  # of which a URL may end in the middle
    return _URL.sub(lambda url: _PARAMETER.sub(rf"\1{_HIDDEN}", _TOKEN.sub(rf"\1://{_HIDDEN}@", url[0])), text)
