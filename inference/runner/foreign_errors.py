"""What other people's exceptions say, fit for a message of ours."""


def told(error: BaseException) -> str:
    """On one line, without the stack that torch appends; a KeyError says only its key, others at times nothing."""
    text = " ".join(str(error).split("Exception raised from")[0].split())
    return f"{type(error).__name__}: {text}" if isinstance(error, KeyError) or not text else text
