"""A terminal, as far as tests need one."""

from __future__ import annotations

import os
import re


def read_all(descriptor: int) -> str:
    """All that comes until the other end is closed."""
    chunks = []
    while True:
        try:
            chunk = os.read(descriptor, 65536)
        except OSError:  # the other end is closed
            break
        if not chunk:
            break
        chunks.append(chunk)
    os.close(descriptor)
    return b"".join(chunks).decode()


def screen(shown: str) -> list[str]:
    """What a terminal shows at the end: enough of one for carriage returns, line feeds, moves up and erased lines."""
    lines, row, column = [""], 0, 0
    for part in re.findall(r"\x1b\[[0-9;?]*[A-Za-z]|[\r\n]|[^\x1b\r\n]+", shown):
        if part == "\r":
            column = 0
        elif part == "\n":
            row += 1
            if row == len(lines):
                lines.append("")
        elif part.startswith("\x1b["):
            count = int(re.sub(r"\D", "", part) or 1)
            if part.endswith("A"):
                row = max(row - count, 0)
            elif part.endswith("K"):
                lines[row] = "" if count == 2 else lines[row][:column]
        else:
            old = lines[row].ljust(column)
            lines[row] = old[:column] + part + old[column + len(part) :]
            column += len(part)
    return [line.rstrip() for line in lines]
