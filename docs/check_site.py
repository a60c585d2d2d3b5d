"""Check a built site: every internal link leads somewhere, and no page asks the network for anything.

python docs/check_site.py docs/_build/html
"""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

# Attributes by which a browser fetches something without being asked.
FETCHES = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src", "video": "src"}
QUIET = {"canonical", "search", "author", "next", "prev", "index", "help"}  # of <link rel>: nothing is fetched
IN_STYLES = re.compile(r"(?:@import\s+|url\()\s*['\"]?(https?:)?//")


class Page(HTMLParser):
    """The links, the anchors and the fetched addresses of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.fetched: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.anchors |= {found[name] for name in ("id", "name") if name in found}
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        if tag in FETCHES and FETCHES[tag] in found and found.get("rel") not in QUIET:
            self.fetched.append(found[FETCHES[tag]])


def problems(site: Path) -> list[str]:
    """What is wrong with a site, a line each."""
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    found = []
    for path, page in pages.items():
        where = path.relative_to(site)
        found += [f"{where} fetches {address}" for address in page.fetched if re.match(r"(https?:)?//", address)]
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.exists():
                found.append(f"{where} links to {link}, which does not exist")
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors:
                found.append(f"{where} links to {link}, which has no such anchor")
    for style in sorted(site.rglob("*.css")):
        if IN_STYLES.search(style.read_text(encoding="utf-8", errors="replace")):
            found.append(f"{style.relative_to(site)} fetches from the network")
    return found


def main() -> None:
    site = Path(sys.argv[1]).resolve()
    if not (site / "index.html").exists():
        sys.exit(f"{site} holds no site: build it with make docs")
    if found := problems(site):
        sys.exit("\n".join([*found, f"{len(found)} problems"]))
    pages = len(list(site.rglob("*.html")))
    print(f"{pages} pages: every internal link leads somewhere, and nothing is fetched from the network")


if __name__ == "__main__":
    main()
