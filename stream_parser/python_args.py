"""Placeholder of the interface; the body follows."""


class PythonScanner:
    done = False
    surplus = ""

    def __init__(self, **_options: object) -> None:
        self.reasons: list[str] = []
        raise NotImplementedError

    def feed(self, text: str, pos: int = 0) -> int:
        raise NotImplementedError

    def force(self, text: str, pos: int = 0) -> int:
        raise NotImplementedError

    def take(self) -> str:
        raise NotImplementedError

    def end(self, complete: bool) -> None:
        raise NotImplementedError
