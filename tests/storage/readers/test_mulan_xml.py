"""Label names from Mulan XML files."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from mlfs_dask.errors import DataError
from mlfs_dask.storage.readers.mulan_xml import read_mulan_labels


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ('<?xml version="1.0"?>\r\n<labels xmlns="http://mulan.sourceforge.net/labels">'
         '<label name="b"></label>\r\n<label name="a b"/></labels>', ("b", "a b")),
        ('<labels><label name="01"><label name="01/01"><label name="01/01/03"/></label></label>'
         '<label name="02"/></labels>', ("01", "01/01", "01/01/03", "02")),
        (r'<labels><label name="TAG_m\'usica"/><label name="Swainson&apos;s"/><label name="ß"/></labels>',
         (r"TAG_m\'usica", "Swainson's", "ß")),
    ],
)  # fmt: skip
def test_names(tmp_path: Path, text: str, names: tuple[str, ...]) -> None:
    path = tmp_path / "labels.xml"
    path.write_text(text)
    assert read_mulan_labels(str(path)) == names
    packed = tmp_path / "labels.xml.gz"
    packed.write_bytes(gzip.compress(text.encode()))
    assert read_mulan_labels(str(packed)) == names


@pytest.mark.parametrize(
    ("text", "problem", "line"),
    [
        ("", "a Mulan XML file of labels was expected: no element found", 1),
        ("<labels>\n<label name='a'>\n</labels>", "a Mulan XML file of labels was expected: mismatched tag", 3),
        ("@relation r", "a Mulan XML file of labels was expected: not well-formed", 1),
        ("<labels></labels>", "no <label> element was found", None),
        ("<labels><label/></labels>", "a <label> element has no name", 1),
        (
            "<labels><label name='l1'/>\n<label name='l0'/>\n<label name='l1'/></labels>",
            "line 3, value 'l1': the label is named a second time; the first is in line 1",
            3,
        ),
    ],
)
def test_refused(tmp_path: Path, text: str, problem: str, line: int | None) -> None:
    path = tmp_path / "labels.xml"
    path.write_text(text)
    with pytest.raises(DataError, match=problem) as caught:
        read_mulan_labels(str(path))
    assert (caught.value.file, caught.value.line) == (str(path), line)
    assert caught.value.cure


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"absent\.xml: there is no such file"):
        read_mulan_labels(str(tmp_path / "absent.xml"))
