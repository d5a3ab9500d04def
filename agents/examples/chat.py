"""A chat in thirty lines of plain, blocking code. (The full one is `headrace chat`.)

Run a server first (`make serve`), then `python agents/examples/chat.py`. An empty line leaves; Ctrl-C cancels an
answer.
"""

from headrace import Client, ContentDelta, HeadraceError, Message


def main() -> None:
    conversation: list[dict[str, object] | Message] = []
    with Client() as client:
        while line := input("you: ").strip():
            asked: list[dict[str, object] | Message] = [*conversation, {"role": "user", "content": line}]
            try:
                with client.stream(asked, max_tokens=300) as turn:
                    for event in turn:
                        if isinstance(event, ContentDelta):
                            print(event.text, end="", flush=True)
                    conversation = [*asked, turn.final()]
            except KeyboardInterrupt:
                print(" [cancelled]", end="")
            except HeadraceError as error:
                print(f"[{error}]", end="")
            print()


if __name__ == "__main__":
    main()
