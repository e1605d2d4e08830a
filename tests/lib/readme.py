# SPDX-License-Identifier: MIT
"""The examples of README.md, to be run as a reader would."""
import pathlib
import re

README = pathlib.Path(__file__).resolve().parent.parent.parent / "README.md"


def blocks(section, language):
    """The fenced blocks of that language in a section, in order."""
    text = README.read_text()
    text = text[text.index(f"\n## {section}\n"):]
    end = text.find("\n## ", 1)
    return re.findall(rf"^```{language}\n(.*?)^```$", text[:end], re.S | re.M)


def commands(section):
    """Its indented lines."""
    text = README.read_text()
    text = text[text.index(f"\n## {section}\n"):]
    text = re.sub(r"^```.*?^```$", "", text[:text.find("\n## ", 1)], flags=re.S | re.M)
    return re.findall(r"^    (\S.*)$", text, re.M)
