"""A verdict in the forms of continuous integration: JUnit's XML, an annotation of GitHub's.

Markdown for a job's summary is in markdown.py. The mark of the verdict decides: `fail` is a
failure, and `unknown` an error.
"""

from __future__ import annotations

from xml.etree import ElementTree

from pgpaces.show.escape import line, lines
from pgpaces.show.section import Mark, Section

_ELEMENTS: dict[Mark, str] = {"fail": "failure", "unknown": "error", "invalid": "error"}
_LEVELS: dict[Mark, str] = {"fail": "error", "unknown": "warning", "invalid": "warning"}


def junit(section: Section, text: str) -> bytes:
    """A test suite of one case. text: the answer as a terminal shows it.

    Form: the XML that JUnit's Ant task writes, which GitLab, Jenkins and others read.
    """
    mark = _mark(section)
    element = _ELEMENTS.get(mark)
    counts = {"failures": str(int(element == "failure")), "errors": str(int(element == "error"))}
    suites = ElementTree.Element("testsuites", {"tests": "1", **counts})
    suite = ElementTree.SubElement(suites, "testsuite", {"name": "pgpaces", "tests": "1", **counts})
    case = ElementTree.SubElement(
        suite,
        "testcase",
        {"classname": f"pgpaces.{section.key}", "name": line(section.title)},
    )
    if element is not None:
        reason = ElementTree.SubElement(
            case, element, {"type": _word(section), "message": line(section.conclusion)}
        )
        reason.text = lines("\n".join(section.sentences))
    ElementTree.SubElement(case, "system-out").text = lines(text)
    ElementTree.indent(suites)
    xml = ElementTree.tostring(suites, encoding="unicode")
    return f"<?xml version='1.0' encoding='utf-8'?>\n{xml}\n".encode("utf-8", "replace")


def annotation(section: Section) -> str:
    """A workflow command of GitHub that shows the verdict at the top of the job."""
    level = _LEVELS.get(_mark(section), "notice")
    title = _data(f"pgpaces: {_word(section)}").replace(":", "%3A").replace(",", "%2C")
    return f"::{level} title={title}::{_data(line(section.conclusion))}"


def _mark(section: Section) -> Mark:
    return section.headline.mark if section.headline else ""


def _word(section: Section) -> str:
    head = section.headline
    return (head.outcome or head.word).lower() if head else section.key


def _data(text: str) -> str:
    """The text with the escapes that GitHub's runner decodes."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
