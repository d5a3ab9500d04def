"""What the package raises: never for model output, only for what its caller chose."""


class ParserError(Exception):
    """Root of this package's exceptions; the caller's fault, the parser is not usable."""


class UnknownDialect(ParserError, LookupError):
    """No dialect has that name, or none fits the template; the message names the nearest and how to choose by hand."""

    def __init__(self, message: str, nearest: str = "") -> None:
        super().__init__(message)
        self.nearest = nearest


class UnsupportedTemplate(ParserError, ValueError):
    """A checkpoint's response_template says something that no declaration can say."""

    def __init__(self, what: str) -> None:
        super().__init__(f"this response_template cannot be imported: {what}")
