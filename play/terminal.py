"""The terminal's way to play: a line is a text, and an answer follows; commands begin with a slash.

Results are plain text, with bars and maps of characters.
"""

import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from difflib import get_close_matches
from io import TextIOWrapper
from textwrap import indent

from ..reporting.text import for_terminal
from ..text.bad_records import foreign_character
from .ability import MOST_CHARACTERS, Ability, NumberField, TextField
from .sessions import Session, described

HELP = """\
  A line of text is answered by the chosen ability. Commands:
  /NAME [TEXT]       choose an ability (and use it): {names}
  /set FIELD VALUE   change a setting: {settings}
  /examples          show texts to try
  /models            say what the models are
  /help              show this
  /quit              leave (as does Ctrl-D)"""

SEVERAL_LINES = 5
"""Lines of a field from which on it holds several texts."""


class Conversation:
    """A session in the terminal.

    Args:
        session: The models, whose answers are printed one after the other.
        read: Shows a prompt and gives the next line; raises `EOFError` at the end.
        say: Prints.
    """

    def __init__(self, session: Session, read: Callable[[str], str], say: Callable[[str], None]):
        self.session = session
        self.read = read
        self.say = say
        self.chosen = next(iter(self.session.abilities))
        self.numbers: dict[str, str] = {}
        self.has_left = False

    @property
    def ability(self) -> Ability:
        """The chosen ability, of the first model that has it."""
        return self.session.abilities[self.chosen]

    def run(self) -> None:
        """Converse until the input ends or the user leaves."""
        self.models()
        self.say(f"\n{self.help_text()}")
        self.introduce()
        with suppress(EOFError):
            while not self.has_left:
                self.respond(self.read(f"{self.chosen}> ").strip())

    def respond(self, line: str) -> None:
        """Carry out a command, or answer a text; an empty line changes nothing."""
        if foreign := foreign_character(line):
            self.say(f"  the line has {foreign!r}, which is no character: write it anew")
        elif line.startswith("/"):
            self.command(line[1:])
        elif line:
            self.answer(line)

    def command(self, line: str) -> None:
        """Carry out a command."""
        name, _, rest = line.partition(" ")
        commands = {
            "help": lambda: self.say(self.help_text()),
            "models": self.models,
            "examples": self.examples,
            "quit": self.leave,
            "exit": self.leave,
        }
        if name == "set":
            self.set(rest)
        elif name in commands:
            commands[name]()
        elif name in self.session.abilities:
            self.choose(name, rest.strip())
        else:
            self.say(
                f"  unknown command /{name}{suggestion(name, [*commands, 'set', *self.session.abilities])}"
            )

    def choose(self, name: str, text: str) -> None:
        """Choose an ability, and use it if there is a text."""
        self.chosen = name
        if text:
            self.answer(text)
        else:
            self.introduce()

    def answer(self, first: str) -> None:
        """Ask for the remaining texts of the ability, and print the answers of all models."""
        fields = [field for field in self.ability.fields if isinstance(field, TextField)]
        texts = [first, *map(self.ask, fields[1:])]
        numbers = {name: value for name, value in self.numbers.items() if name in self.settings()}
        for model, answer in self.session.answers(self.chosen, texts, numbers):
            if len(self.session.models) > 1:
                self.say(f"\n== {model.title} ==")
            self.say(indent(answer if isinstance(answer, str) else for_terminal(answer), "  "))
        self.say("")

    def ask(self, field: TextField) -> str:
        """Ask for one more text, or for several lines up to an empty one."""
        if field.lines <= SEVERAL_LINES:
            return self.read(f"  {field.label}: ")
        self.say(f"  {field.label} (an empty line ends them):")
        text = ""
        with suppress(EOFError):
            while len(text) <= MOST_CHARACTERS and (line := self.read("  - ").strip()):
                text += f"{line}\n"
        return text

    def set(self, line: str) -> None:
        """Change a setting of the chosen ability."""
        name, _, value = line.partition(" ")
        fields = self.settings()
        if name not in fields:
            known = f"settings of {self.chosen}: {', '.join(fields)}" if fields else f"{self.chosen} has none"
            self.say(
                f"  unknown setting {name!r}; {known}" if name else f"  usage: /set FIELD VALUE; {known}"
            )
            return
        try:
            fields[name].parse(value)
        except ValueError as error:
            self.say(f"  {error}")
            return
        self.numbers[name] = value
        self.say(f"  {name} is {value}")

    def settings(self) -> dict[str, NumberField]:
        """Return the settings of the chosen ability by their names."""
        fields = self.session.fields(self.chosen)
        return {field.name: field for field in fields if isinstance(field, NumberField)}

    def introduce(self) -> None:
        """Print what the chosen ability shows."""
        self.say(f"\n  {self.ability.title}: {self.ability.about}")

    def examples(self) -> None:
        """Print texts to try."""
        for texts in self.ability.examples:
            self.say("  " + " | ".join(text.replace("\n", " / ") for text in texts))

    def models(self) -> None:
        """Print what the models are."""
        for model in self.session.models:
            self.say(f"{model.title}: {described(model)}")

    def help_text(self) -> str:
        """List abilities and settings."""
        settings = ", ".join(self.settings()) or "none here"
        return HELP.format(names=", ".join(self.session.abilities), settings=settings)

    def leave(self) -> None:
        """End the session."""
        self.has_left = True


def suggestion(name: str, known: Sequence[str]) -> str:
    """Describe which commands are near to an unknown one, or how to list them."""
    near = " or ".join(f"/{each}" for each in get_close_matches(name, known, n=2))
    return f"; did you mean {near}?" if near else "; /help lists all commands"


def converse(session: Session) -> None:
    """Converse on the terminal, or answer the lines of standard input."""
    if isinstance(sys.stdin, TextIOWrapper):
        sys.stdin.reconfigure(
            errors="surrogateescape"
        )  # what is no text is a line's fault, not the session's
    if sys.stdin.isatty():
        with suppress(ImportError):
            import readline  # noqa: F401  lets `input` edit lines and remember them
        Conversation(session, input, print).run()
    else:
        Conversation(session, echoed, print).run()


def echoed(prompt: str) -> str:
    """Read a line that nobody typed, and print it behind the prompt, as a terminal would show it.

    Raises:
        EOFError: There is none.
        ValueError: It is longer than any text that is read.
    """
    line = sys.stdin.readline(MOST_CHARACTERS + 1)
    if not line:
        raise EOFError
    if len(line) > MOST_CHARACTERS:
        raise ValueError(
            f"a line of standard input is longer than {MOST_CHARACTERS:,} characters: shorten it"
        )
    line = line.removesuffix("\n")
    print(f"{prompt}{line.encode(errors='replace').decode()}")
    return line
