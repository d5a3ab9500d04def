"""Grammars of what a model may write, built from its dialect's declaration and the request's schemas.

`policy` says what a request demands, `build` turns it into a `GrammarSource`, `compile` makes matchers of one, and a
`Matcher` follows one row's tokens and says which may come next. Knows nothing of HTTP, schedulers or devices.
"""
