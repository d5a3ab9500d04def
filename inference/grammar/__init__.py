"""Grammars of what a model may write, built from its dialect's declaration and the request's schemas.

`policy` says what a request demands, `build` turns it into a `GrammarSource`, `compile` makes matchers of one, and a
`Matcher` follows one row's tokens and says which may come next. Knows nothing of HTTP, schedulers or devices.

    source = build_grammar(dialect, CallPolicy("required", tools), special_tokens=special_tokens_of(tokenizer_json))
    compiler.check(source)             # off the loop, since it takes milliseconds; raises GrammarError
    matcher = compiler.matcher(source)
    while not matcher.is_done:
        is_masked = matcher.mask(row)  # then sample a token under it
        matcher.accept(token)
"""
