"""The one exception for bad input: what was found, where, and what is allowed."""


class InputError(ValueError):
    """Input from outside that cannot be used; its message is one line, fit for a person.

    The CLI prints it and exits with 2; from Python it is an ordinary ``ValueError``.
    """

    def __init__(self, where: str, found: str, allowed: str = "") -> None:
        self.where = where
        self.found = found
        self.allowed = allowed
        text = f"{where}: {found}" if where else found
        if allowed:
            text += f"; allowed: {allowed}"
        super().__init__(" ".join(text.split()))

    def __reduce__(self) -> tuple[type["InputError"], tuple[str, str, str]]:
        return type(self), (self.where, self.found, self.allowed)

    def at(self, where: str) -> "InputError":
        """The same complaint, seen from one level further out."""
        inner = f"{where}: {self.where}" if self.where else where
        return InputError(inner, self.found, self.allowed)


def shown(value: object, limit: int = 60) -> str:
    """A short, single-line picture of any value for an error message."""
    try:
        text = repr(value)
    except Exception:  # an int too long to print, a structure too deep
        text = f"a {type(value).__name__} too large to show"
    text = text.encode("ascii", "backslashreplace").decode("ascii")
    return text if len(text) <= limit else text[: limit - 3] + "..."
