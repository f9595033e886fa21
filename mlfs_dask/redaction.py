"""Redaction of secrets in URLs, and display names of files, for messages, logs, records, stores and pages."""

from __future__ import annotations

import re

# Without the scheme, which would be looked for at every letter of a page's long texts.
_URL = re.compile(r"://[^\s'\"<>\\]*")
# A password may hold slashes, quotes, @ and line ends. A colon before digits and a slash, or an end, precedes a port.
_PASSWORD = re.compile(r"://[^/\s@:'\"]*:(?!\d+(?:/|['\"]?(?:[\s,;:)\]]|$)))\S*(?:[\r\n]+\S*)*@")
# In web URLs a user name alone can be a token; elsewhere it may be a container, as in abfs://container@account.
_TOKEN = re.compile(r"(https?|ftp)://[^/\s@:'\"<>\\]+@")
_PARAMETER = re.compile(r"([?&#;][^=&#;]+=)[^&#;]*")
_HIDDEN = "***"

#: Display names of files, by path.
_names: dict[str, str] = {}


def call_file(path: str, name: str) -> None:
    """Set the display name of a file in this process, such as the name of the input copied into it.

    Examples
    --------
    >>> call_file("/tmp/mlfs-5f/standard-input", "standard input")
    >>> redact("/tmp/mlfs-5f/standard-input, line 2: a number was expected")
    'standard input, line 2: a number was expected'
    """
    _names[path] = name


def redact(text: str) -> str:
    """Return a text whose URLs have no passwords and no parameter values, and whose files have their display names.

    Signatures and tokens are parameter values under names that differ between providers, so all values are hidden.

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
    text = _PASSWORD.sub(f"://{_HIDDEN}@", text)  # first: a password may hold characters that end a URL
    text = _TOKEN.sub(rf"\1://{_HIDDEN}@", text)
    return _URL.sub(lambda url: _PARAMETER.sub(rf"\1{_HIDDEN}", url[0]), text)
