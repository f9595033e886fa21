"""Check internal links: `python docs/links.py [SITE]` names those that lead nowhere, and ends with 1 if there are any.

Of the Markdown files of the repository: links to files and to headings. Of these and of the package's sources: paths of
files of the repository that they name. Of SITE, the folder of the built site: links to pages and to anchors. Links to
other hosts are left alone: that would need the network.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

_LINK = re.compile(r"\]\(([^()\s]+)\)")
_HEADING = re.compile(r"^#+ +(.+?) *$", re.MULTILINE)
_NAMED = re.compile(r"\b(?:benchmarks|cli|deploy|docs|mlfs_dask|tests)/[\w./-]+\.(?:md|py|toml|yaml)\b")


class _Page(HTMLParser):
    """Links of a page, and what they may lead to."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        known = dict(attrs)
        self.anchors |= {str(known["id"])} if known.get("id") else set()
        self.links += [str(known[name]) for name in ("href", "src") if known.get(name)]


def _heading_anchors(text: str) -> set[str]:
    """What a host of Markdown makes of the headings: lower case, blanks as hyphens, and no other marks.

    >>> sorted(_heading_anchors("# One, two\\n\\n## `mlfs plan` -k"))
    ['mlfs-plan--k', 'one-two']
    """
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in _HEADING.findall(text)}


def _broken(path: Path, links: list[str], anchors: dict[Path, set[str]]) -> Iterator[str]:
    """Links of a file that lead to no file, or of files in `anchors` to no anchor."""
    for link in links:
        parts = urlsplit(link)
        if parts.scheme:
            continue
        target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
        fragment = unquote(parts.fragment)
        if not target.exists() or (fragment and fragment not in anchors.get(target, {fragment})):
            yield f"{path}: {link}"


def broken_links(root: Path) -> list[str]:
    """Links between the Markdown files of a repository, and paths that its texts name, which lead nowhere."""
    pages = {
        path.resolve(): path.read_text(encoding="utf-8") for path in (*root.glob("*.md"), *root.glob("docs/**/*.md"))
    }
    anchors = {path: _heading_anchors(text) for path, text in pages.items()}
    broken = [each for path, text in pages.items() for each in _broken(path, _LINK.findall(text), anchors)]
    sources = [*pages, *root.glob("mlfs_dask/**/*.py"), *root.glob("cli/**/*.py")]
    for path in (*sources, *root.glob("pyproject.toml"), *root.glob("Makefile")):
        named = dict.fromkeys(_NAMED.findall(path.read_text(encoding="utf-8")))
        broken += [f"{path}: {name}" for name in named if not (root / name).exists()]
    return list(dict.fromkeys(broken))  # a link may be a path, too


def broken_links_of_site(site: Path) -> list[str]:
    """Links between the pages of a built site that lead nowhere."""
    pages = {path.resolve(): _Page(path) for path in site.rglob("*.html")}
    anchors = {path: page.anchors for path, page in pages.items()}
    return [each for path, page in pages.items() for each in _broken(path, page.links, anchors)]


if __name__ == "__main__":
    found = broken_links(Path(__file__).parents[1])
    for folder in sys.argv[1:]:
        found += broken_links_of_site(Path(folder))
    print("\n".join(found), end="\n" if found else "")
    sys.exit(bool(found))
