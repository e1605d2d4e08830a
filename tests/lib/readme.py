# SPDX-License-Identifier: MIT
"""The examples of README.md and of other pages, to be run as a reader would."""
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def section_of(page, section):
    text = (ROOT / page).read_text() + "\n## "
    begin = text.index(f"\n## {section}\n") + 1
    return text[begin:text.index("\n## ", begin) + 1]


def blocks(section, language, page="README.md"):
    """The fenced blocks of that language in a section, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```$", section_of(page, section), re.S | re.M)


def commands(section, page="README.md"):
    """Its indented lines."""
    text = re.sub(r"^```.*?^```$", "", section_of(page, section), flags=re.S | re.M)
    return re.findall(r"^    (\S.*)$", text, re.M)
