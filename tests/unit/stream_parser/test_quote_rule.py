import pytest

from stream_parser.json_scanner import JsonScanner
from stream_parser.quote_rule import MAX_LOOKAHEAD, QuoteContext, Role, comma_role, quote_role, settle

KEY = QuoteContext("key", "}]", "<")
MEMBER = QuoteContext("member", "}", "<")
ITEM = QuoteContext("item", "]}", "<")
KEYWORD = QuoteContext("keyword_argument", "", "<")
ARGUMENT = QuoteContext("argument", "", "<")


@pytest.mark.parametrize(
    ("context", "held", "role"),
    [
        (KEY, '" :', Role.CLOSE),
        (KEY, '"]', Role.CLOSE),
        (KEY, '" {', Role.CLOSE),
        (KEY, '"{', Role.INNER),
        (KEY, '"x', Role.INNER),
        (KEY, '"<', Role.STOP),
        (KEY, '" //', Role.CLOSE),
        (MEMBER, '"', None),
        (MEMBER, '" ', None),
        (MEMBER, '" }', Role.CLOSE),
        (MEMBER, '",', None),
        (MEMBER, '", }', Role.CLOSE),
        (MEMBER, '", "k', None),
        (MEMBER, '", "k\\"e":', Role.CLOSE),
        (MEMBER, '", "k")', Role.INNER),
        (MEMBER, '", "k" 1', Role.CLOSE),
        (MEMBER, '", key', None),
        (MEMBER, '", key :', Role.CLOSE),
        (MEMBER, '", key and', Role.INNER),
        (MEMBER, '", <', Role.STOP),
        (MEMBER, '", (', Role.INNER),
        (MEMBER, '", /', None),
        (MEMBER, '", //', Role.CLOSE),
        (MEMBER, '", /x', Role.INNER),
        (MEMBER, '", # x', Role.CLOSE),
        (MEMBER, '" /', None),
        (MEMBER, '" /*', Role.CLOSE),
        (MEMBER, '" /x', Role.INNER),
        (MEMBER, '" #', Role.INNER),
        (MEMBER, '"\n#', Role.CLOSE),
        (MEMBER, '"]', None),
        (MEMBER, '"] }', Role.CLOSE),
        (MEMBER, '"] x', Role.INNER),
        (MEMBER, '"\nkey', None),
        (MEMBER, '"\nkey:', Role.CLOSE),
        (MEMBER, '"\nkey ', None),
        (MEMBER, '" key:', Role.INNER),
        (MEMBER, '" "k":', Role.CLOSE),
        (MEMBER, '" "more"}', Role.JOIN),
        (MEMBER, '" "more" x', Role.INNER),
        (MEMBER, '""', None),
        (MEMBER, '"" ', None),
        (MEMBER, '""}', Role.INNER),
        (MEMBER, '""k":', Role.CLOSE),
        (MEMBER, '""k"}', Role.INNER),
        (MEMBER, '"<', Role.STOP),
        (ITEM, '", "', Role.CLOSE),
        (ITEM, '", -', Role.CLOSE),
        (ITEM, '", tr', None),
        (ITEM, '", true]', Role.CLOSE),
        (ITEM, '", trial', Role.INNER),
        (ITEM, '", <', Role.STOP),
        (ITEM, '", ;', Role.INNER),
        (ITEM, '" "b"]', Role.CLOSE),
        (ITEM, "' 'b']", Role.JOIN),
        (ITEM, "''b']", Role.INNER),
        (KEYWORD, "', n=", Role.CLOSE),
        (KEYWORD, "', n ", None),
        (KEYWORD, "', 'x", Role.INNER),
        (KEYWORD, "', *", Role.CLOSE),
        (KEYWORD, "', <", Role.STOP),
        (KEYWORD, "')", None),
        (KEYWORD, "')]", Role.CLOSE),
        (KEYWORD, "')\n", Role.CLOSE),
        (KEYWORD, "')<", Role.CLOSE),
        (KEYWORD, "') x", Role.INNER),
        (KEYWORD, "' 'x')", Role.JOIN),
        (ARGUMENT, "', 'x", Role.CLOSE),
        (ARGUMENT, "', n=", Role.CLOSE),
        (ARGUMENT, "', None)", Role.CLOSE),
        (ARGUMENT, "', none)", Role.INNER),
        (QuoteContext("member", "}", "", fresh=True), '""', Role.TRIPLE),
    ],
)  # fmt: skip
def test_what_follows_decides_about_a_quote(context, held, role):
    assert quote_role(held, context) is role


def test_a_decision_holds_for_every_longer_text():
    for context in (KEY, MEMBER, ITEM, KEYWORD, ARGUMENT):
        for held in ('", "k": 1', '" x', '", true, 2', '" "b", c', "') ]", '"], {"a"'):
            roles = [quote_role(held[:end], context) for end in range(1, len(held) + 1)]
            decided = [role for role in roles if role is not None]
            assert len(set(decided)) <= 1, (context, held, roles)


@pytest.mark.parametrize(
    ("context", "held", "role"),
    [
        (MEMBER, '"', Role.CLOSE),
        (MEMBER, '" ,  ', Role.CLOSE),
        (MEMBER, '", "k', Role.CLOSE),
        (MEMBER, '", k', Role.INNER),
        (MEMBER, '" "k', Role.INNER),
        (ITEM, '", nul', Role.CLOSE),
        (ITEM, '", no', Role.INNER),
        (KEYWORD, "')", Role.CLOSE),
        (KEYWORD, "') ", Role.CLOSE),
    ],
)
def test_at_the_end_of_the_text_the_likelier_answer_is_taken(context, held, role):
    assert settle(held, context) is role


def test_a_comma_behind_a_bare_word_needs_a_key():
    assert comma_role(", key:", MEMBER) is Role.CLOSE
    assert comma_role(", NY", MEMBER) is None
    assert comma_role(", NY,", MEMBER) is Role.INNER


def test_the_wait_is_bounded():
    scanner = JsonScanner()
    scanner.feed('{"a": "x", "' + "k" * MAX_LOOKAHEAD)
    assert scanner.take().startswith('{"a": "x", "kkk')
    scanner = JsonScanner()
    scanner.feed('{"a": x, ' + "k" * MAX_LOOKAHEAD)
    assert scanner.take() == '{"a": "x", "'
