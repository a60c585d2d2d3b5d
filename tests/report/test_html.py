"""Text becomes HTML in one place, where it is escaped."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.markup import tags

from dphypo.report import Html, block, bullets, facts, table, tag, text


@settings(deadline=None, max_examples=50)
@example("<b>bold</b>")
@example('"><i onclick="x()">')
@example("</title><script>x()</script>")
@given(st.text(max_size=60) | st.text(alphabet="<>&\"'/=!- ab", max_size=30))
def test_no_text_makes_an_element_or_leaves_its_attribute(words):
    page = tag("p", words, title=words)
    assert tags(page) == ["p"]
    assert tags(text(words)) == []
    assert tags(block(words)) == ["pre", "code"]
    assert set(tags(table(words, [words, "b"], [[words, words]]))) == {
        *("div", "table", "caption", "thead", "tbody", "tr", "th", "td")
    }


def test_html_is_not_escaped_twice_and_control_characters_are_written_out():
    assert tag("p", tag("b", "1 < 2")) == "<p><b>1 &lt; 2</b></p>"
    assert text("a\x1b[31m\u202eb") == "a\\x1b[31m\\u202eb"
    assert tag("p", Html("<i>x</i>"), class_=None) == "<p><i>x</i></p>"
    assert tag("meta", charset="utf-8") == '<meta charset="utf-8">'


def test_long_text_is_cut():
    assert len(text("x" * 10_000)) < 3_000


def test_small_pieces():
    assert facts([("a", "<")]) == "<dl><div><dt>a</dt><dd>&lt;</dd></div></dl>"
    assert bullets(["a", "b"]) == "<ul><li>a</li><li>b</li></ul>"
    assert block("a\nb") == '<pre tabindex="0"><code>a\nb</code></pre>'
