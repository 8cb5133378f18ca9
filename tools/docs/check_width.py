#!/usr/bin/env python3
"""Checks that no line of Markdown has more than 100 columns outside tables and code fences.

Test ccl.docs.width. A line that is one unbreakable word, such as a long link, may be longer.
A line within a paragraph must not begin as an item of a list does: "128. To repeat".
"""

import re
import sys
from pathlib import Path

import pages

LIMIT = 100
ITEM = re.compile(r" *([-*+]|[0-9]+[.)]) ")

if __name__ == "__main__":
    root = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else pages.ROOT
    problems, lines = [], 0
    for page in pages.markdown(root):
        text, _ = pages.split(page)
        before = ""  # the line before, if it is part of a paragraph outside lists
        for number, line in text:
            lines += 1
            content = line.strip()
            if before and ITEM.match(line):
                problems.append(
                    f"{page.relative_to(root)}:{number}: begins as an item of a list, within a paragraph"
                )
            outside = not line.startswith((" ", "|", "#", ">")) and not ITEM.match(line)
            before = content if outside else ""
            if (
                len(line) <= LIMIT
                or content.startswith("|")
                or len(content.lstrip("-* ").split()) == 1
            ):
                continue
            problems.append(
                f"{page.relative_to(root)}:{number}: {len(line)} columns, more than {LIMIT}"
            )
    pages.finish(problems, f"{lines} lines")
