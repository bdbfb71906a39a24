"""A verdict in the forms of continuous integration: JUnit's XML, an annotation of GitHub's.

Markdown for a job's summary is in markdown.py. How a verdict is marked decides: what misses is a
failure, and what is not known an error, as nothing was decided.
"""

from __future__ import annotations

from xml.etree import ElementTree

from pgpaces.report.escape import line, lines
from pgpaces.section import Mark, Section

_ELEMENTS: dict[Mark, str] = {"misses": "failure", "unknown": "error", "not valid": "error"}
_LEVELS: dict[Mark, str] = {"misses": "error", "unknown": "warning", "not valid": "warning"}
# No character of XML 1.0, and none that a terminal minds.
_NO_XML = {0xFFFE: "\ufffd", 0xFFFF: "\ufffd"}


def junit(found: Section, text: str) -> bytes:
    """A test suite of one case. text: the answer as a terminal shows it.

    Form: the XML that JUnit's Ant task writes, which GitLab, Jenkins and others read.
    """
    mark = _mark(found)
    element = _ELEMENTS.get(mark)
    counts = {"failures": str(int(element == "failure")), "errors": str(int(element == "error"))}
    suites = ElementTree.Element("testsuites", {"tests": "1", **counts})
    suite = ElementTree.SubElement(suites, "testsuite", {"name": "pgpaces", "tests": "1", **counts})
    case = ElementTree.SubElement(
        suite, "testcase", {"classname": f"pgpaces.{found.key}", "name": _plain(line(found.title))}
    )
    if element is not None:
        reason = ElementTree.SubElement(
            case, element, {"type": _word(found), "message": _plain(line(message(found)))}
        )
        reason.text = _plain(lines("\n".join(each.text for each in found.sentences)))
    ElementTree.SubElement(case, "system-out").text = _plain(lines(text))
    ElementTree.indent(suites)
    made = ElementTree.tostring(suites, encoding="unicode")
    return f"<?xml version='1.0' encoding='utf-8'?>\n{made}\n".encode("utf-8", "replace")


def annotation(found: Section) -> str:
    """A workflow command of GitHub, which shows the verdict at the top of the job."""
    level = _LEVELS.get(_mark(found), "notice")
    title = _property(f"pgpaces: {_word(found)}")
    return f"::{level} title={title}::{_data(line(message(found)))}"


def message(found: Section) -> str:
    """The verdict in a sentence: what the section says first, else its headline."""
    main = [each.text for each in found.sentences if each.weight == "main"]
    return main[0] if main else (found.headline.text if found.headline else found.title)


def _mark(found: Section) -> Mark:
    return found.headline.mark if found.headline else ""


def _word(found: Section) -> str:
    return found.headline.word.lower() if found.headline else found.key


def _plain(text: str) -> str:
    return text.translate(_NO_XML)


def _data(text: str) -> str:
    """As GitHub's runner takes it back."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
