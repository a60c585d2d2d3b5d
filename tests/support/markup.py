"""What elements a page has, as a browser's parser would find them."""

from __future__ import annotations

from html.parser import HTMLParser


class _Seen(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.append(tag)


def tags(page: str) -> list[str]:
    """The names of all elements, in order."""
    seen = _Seen()
    seen.feed(page)
    seen.close()
    return seen.tags
