import pytest
from headrace.docstrings import parse_docstring

GOOGLE = """Find things.

    More on it: with a colon.

    Args:
        query: What to look for,
            on two lines.
        limit (int, optional): At most
            so many: no more.
        **options: Passed on.

    Raises:
        ValueError: never.

    Examples:
        query: this is code
    """
NUMPY = """Find things.

    More on it: with a colon.

    Parameters
    ----------
    query : str
        What to look for,
        on two lines.
    limit, most : int, optional
        At most so many: no more.

    Returns
    -------
    list
        Things.
    """
REST = """Find things.

    More on it: with a colon.

    :param query: What to look for,
        on two lines.
    :param int limit: At most so many: no more.
    :type limit: int
    :returns: Things.
    :raises ValueError: never.
    """


@pytest.mark.parametrize("docstring", [GOOGLE, NUMPY, REST])
def test_each_layout_gives_text_and_parameters(docstring):
    parsed = parse_docstring(docstring)
    assert parsed.text == "Find things.\n\nMore on it: with a colon."
    assert parsed.parameters["query"] == "What to look for, on two lines."
    assert parsed.parameters["limit"] == "At most so many: no more."


def test_one_numpy_entry_can_be_for_two_parameters():
    assert parse_docstring(NUMPY).parameters["most"] == "At most so many: no more."


def test_starred_parameters_lose_their_stars():
    assert parse_docstring(GOOGLE).parameters["options"] == "Passed on."


@pytest.mark.parametrize("docstring", [None, "", "   \n  "])
def test_no_docstring_says_nothing(docstring):
    assert parse_docstring(docstring) == parse_docstring("")
    assert parse_docstring(docstring).text == ""


@pytest.mark.parametrize(
    "text", ["Note: be careful.", ":smile: hello", "Args and more", "-----", "Parameters\nare good"]
)
def test_text_that_only_looks_like_a_section_is_text(text):
    assert parse_docstring(text).text == text


def test_text_after_the_parameters_is_kept():
    assert parse_docstring("A.\n\nArgs:\n    x: X.\n\nB.").text == "A.\n\nB."


def test_an_empty_section_at_the_end_says_nothing():
    assert parse_docstring("A.\n\nArgs:").parameters == {}
