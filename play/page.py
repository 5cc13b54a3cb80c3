"""The page: one tab for each ability, with fields on top and the answers of all models below.

Gradio serves it. Nothing of it comes from the network, and nothing is reported to anybody. It has the colours
of the reports, in light and dark, and one column on phones.

Requests that the page does not send are refused before Gradio sees them. A page on `127.0.0.1` is reached
from this machine alone, but a browser on it opens other people's pages, too. Such a page may let its own name
stand for 127.0.0.1 ("DNS rebinding") and talk to this one. It cannot hide the name: it stands in the header
`Host`, which is therefore compared with the names of this machine. Gradio has more endpoints than the page
uses, such as one that keeps whatever file is sent to it.
"""

import os
import socket
import sys
import warnings
from collections.abc import Awaitable, Callable, Iterable, Sequence
from html import escape
from typing import Any
from urllib.parse import urlsplit

from ..ground.messages import first_line
from ..reporting.blocks import Result
from ..reporting.page import template
from .ability import MOST_CHARACTERS, Ability, NumberField, TextField
from .loaded_model import LoadedModel
from .sessions import Session

FONTS = ("ui-sans-serif", "system-ui", "-apple-system", "Segoe UI", "DejaVu Sans", "sans-serif")
MONOSPACE = ("ui-monospace", "DejaVu Sans Mono", "Consolas", "monospace")

AS_SENT: dict[str, Any] = {"preprocess": False, "postprocess": False, "api_visibility": "private"}
"""How events are passed on: values are checked by the ability, whose messages say what to do."""

os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")


def build_page(session: Session) -> Any:
    """Build the page of a session, a `gradio.Blocks`.

    Raises:
        ImportError: Gradio is not installed.
    """
    import gradio

    title = " and ".join(model.title for model in session.models)
    with gradio.Blocks(title=f"{title} | Tercet", analytics_enabled=False) as page:
        gradio.HTML(header(session.models), elem_classes="play")
        with gradio.Tabs():
            opened = [add_tab(gradio, session, ability) for ability in session.abilities.values()]
        answer, inputs, output = opened[0]
        page.load(answer, inputs, output, show_progress="hidden", **AS_SENT)
    return page


def add_tab(gradio: Any, session: Session, ability: Ability) -> tuple[Callable[..., str], list[Any], Any]:
    """Add the tab of an ability; give the function that answers, its inputs and its output."""
    fields = session.fields(ability.name)
    answer = answering(session, ability.name, sum(isinstance(field, TextField) for field in fields))
    with gradio.Tab(ability.title, elem_id=f"tab-{ability.name}"):
        gradio.HTML(f'<p class="about">{escape(about(session, ability))}</p>', elem_classes="play")
        texts = [
            text_box(gradio, ability, field, value)
            for field, value in zip(fields, ability.examples[0], strict=False)
            if isinstance(field, TextField)
        ]
        add_examples(gradio, ability, texts)
        numbers = add_numbers(gradio, ability, [f for f in fields if isinstance(f, NumberField)])
        button = gradio.Button(
            ability.action, variant="primary", elem_id=f"run-{ability.name}", elem_classes="run"
        )
        output = gradio.HTML(
            '<p class="placeholder">The answer appears here.</p>',
            elem_classes="play",
            elem_id=f"answer-{ability.name}",
        )
    inputs = [*texts, *numbers]
    button.click(answer, inputs, output, show_progress="minimal", **AS_SENT)
    for text in texts:
        text.submit(answer, inputs, output, show_progress="minimal", **AS_SENT)
    return answer, inputs, output


def text_box(gradio: Any, ability: Ability, field: TextField, value: str) -> Any:
    """Add a field for a text."""
    return gradio.Textbox(
        value,
        label=field.label,
        lines=field.lines,
        max_lines=20,
        max_length=MOST_CHARACTERS,
        elem_id=f"{ability.name}-{field.name}",
    )


def add_numbers(gradio: Any, ability: Ability, fields: Sequence[NumberField]) -> list[Any]:
    """Add sliders, in a part of the tab that is closed at first."""
    if not fields:
        return []
    is_open = ability.name == "attention"
    with gradio.Accordion("Settings", open=is_open, elem_classes="settings"), gradio.Row():
        return [
            gradio.Slider(
                field.least,
                field.most,
                field.default,
                step=field.step,
                label=field.label,
                min_width=140,
                elem_id=f"{ability.name}-{field.name}",
            )
            for field in fields
        ]


def add_examples(gradio: Any, ability: Ability, texts: Sequence[Any]) -> None:
    """Add examples, which a click writes into the fields; what is the same in all of them is left out."""
    columns = [*zip(*ability.examples, strict=True)]
    shown = [number for number, column in enumerate(columns) if len(set(column)) > 1]
    if shown:
        rows = [[each[number] for number in shown] for each in ability.examples]
        fields = [texts[number] for number in shown]
        examples = gradio.Dataset(components=fields, samples=rows, type="index", label="Examples")

        def chosen(number: Any) -> Any:
            row = rows[number if number in range(len(rows)) else 0]
            return row if len(row) > 1 else row[0]

        examples.click(chosen, examples, fields, show_progress="hidden", queue=False, **AS_SENT)


def about(session: Session, ability: Ability) -> str:
    """Describe what an ability shows, and which models have it if not all do."""
    able = session.able(ability.name)
    if len(able) == len(session.models):
        return ability.about
    return f"{ability.about} Only {' and '.join(model.title for model in able)} can do this."


def answering(session: Session, name: str, num_texts: int) -> Callable[..., str]:
    """Make the function behind a button: from the values of the fields to the HTML of all answers."""
    numbers = [field.name for field in session.fields(name) if isinstance(field, NumberField)]

    def answer(*values: Any) -> str:  # of whatever kind: anybody may send some
        texts = ["" if value is None else str(value) for value in values[:num_texts]]
        return as_html(session.answers(name, texts, dict(zip(numbers, values[num_texts:], strict=False))))

    return answer


def header(models: Sequence[LoadedModel]) -> str:
    """Write the title of the page and what the models are."""
    return str(template("play.html").module.header(models))


def as_html(answers: Iterable[tuple[LoadedModel, Sequence[Result] | str]]) -> str:
    """Write the answers of models side by side; below each other where there is no room."""
    return str(template("play.html").module.answers([*answers]))


def theme() -> Any:
    """Return Gradio's plainest theme, with fonts of the reader's machine and the reports' colours."""
    from gradio import themes

    plain = themes.Base(primary_hue="blue", neutral_hue="stone", font=FONTS, font_mono=MONOSPACE)
    colours = {
        "body_background_fill": "var(--paper)",
        "body_text_color": "var(--ink)",
        "block_background_fill": "transparent",
        "block_title_text_color": "var(--quiet)",
        "border_color_primary": "var(--line)",
        "input_background_fill": "var(--card)",
        "input_border_color": "var(--line)",
        "button_primary_background_fill": "var(--button)",
        "button_primary_background_fill_hover": "var(--first)",
        "button_secondary_background_fill": "var(--card)",
    }
    colours |= {f"{name}_dark": value for name, value in colours.items()}
    shape = {"block_border_width": "0px", "input_border_width": "1px", "block_padding": "0px"}
    return plain.set(**colours, **shape, input_radius="10px", button_large_radius="10px")


def serve(
    session: Session,
    *,
    host: str = "127.0.0.1",
    port: int | None = None,
    share: bool = False,
    wait: bool = True,
) -> tuple[Any, str]:
    """Serve the page, and give it with its address.

    Args:
        session: The models.
        host: Address to listen on; the default is reached from this machine alone.
        port: Port to listen on; the first free one from 7860 by default.
        share: Let Gradio make a public address for the page.
        wait: Return only when the user interrupts.

    Raises:
        ValueError: The port is not free, or the address is none of this machine's.
    """
    from starlette.middleware import Middleware  # of Gradio

    warnings.filterwarnings("ignore", module=r"gradio\b")  # what it says of its own code
    require_address(host, port)
    page = build_page(session)
    try:
        _, local, public = page.launch(
            server_name=host,
            server_port=port,
            share=share,
            quiet=True,
            prevent_thread_lock=True,
            footer_links=[],
            ssr_mode=False,
            enable_monitoring=False,
            theme=theme(),
            css=template("play.css").render(),
            app_kwargs={"middleware": [Middleware(Gate, hosts=hosts_of(host, share=share))]},
        )
    except OSError as error:
        raise ValueError(
            f"the page cannot be served at {host} ({error}): choose another --port or --host"
        ) from error
    address = public or local
    if wait:
        print(f"{address}  (Ctrl-C ends the page)", flush=True)
        page.block_thread()
    return page, address


def require_address(host: str, port: int | None) -> None:
    """Make sure that this machine has an address, and that a port is free there: Gradio tries for minutes.

    Raises:
        ValueError: It has none, or the port is taken or none.
    """
    try:
        family, kind, _, _, address = socket.getaddrinfo(
            host.strip("[]"), port or 0, type=socket.SOCK_STREAM
        )[0]
        with socket.socket(family, kind) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((address[0], port or 0, *address[2:]))
    except (OSError, OverflowError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        of_port = "" if port is None else f", port {port}"
        raise ValueError(
            f"the page cannot be served at {host!r:.80}{of_port} ({reason}): choose another --port or --host"
        ) from error


OWN_NAMES = ("localhost", "127.0.0.1", "::1")
"""Hosts under which this machine reaches itself."""

EVERY_ADDRESS = ("0.0.0.0", "::")
"""Addresses to listen on that stand for all of the machine's, whatever they are called outside."""

USED = ("/queue/join", "/cancel", "/reset")
"""Endings of the addresses to which the page sends something."""

MOST_BYTES = 4 * 2**20
"""Size of what it sends: all fields of a tab."""

Application = Callable[[dict[str, Any], Any, Any], Awaitable[None]]


class Gate:
    """Passes on what the page asks for, as an ASGI middleware; what fails behind it is one line.

    Args:
        app: What answers.
        hosts: Names of the page's machine; None if it may have any.
    """

    def __init__(self, app: Application, hosts: frozenset[str] | None):
        self.app = app
        self.hosts = hosts

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        """Answer a request, or refuse it with a reason."""
        if scope["type"] == "lifespan":
            return await self.app(scope, receive, send)
        if scope["type"] != "http":
            return await send({"type": "websocket.close"})
        if refused := self.refusal(scope):
            return await answer(send, *refused)
        has_begun = False

        async def noted(message: dict[str, Any]) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        try:
            await self.app(scope, receive, noted)
        except Exception as error:  # of a request that the page does not send
            told = f"{scope.get('method')} {scope['path']!r:.80} failed"
            print(f"tercet play: {told} ({type(error).__name__}: {first_line(error)})", file=sys.stderr)
            if not has_begun:
                await answer(send, 500, "this request failed")

    def refusal(self, scope: dict[str, Any]) -> tuple[int, str] | None:
        """Return the status and the reason of a request that is refused."""
        headers = {name.lower(): value.decode("latin-1") for name, value in scope["headers"]}
        if self.hosts is not None and (host := host_of(headers.get(b"host", ""))) not in self.hosts:
            return 421, f"this page is not called {host!r:.80}: open the address that it was started with"
        if scope["method"] in ("GET", "HEAD"):
            return None
        if scope["method"] != "POST" or not scope["path"].rstrip("/").endswith(USED):
            return 404, "the page has no such address"
        size = headers.get(b"content-length", "")
        if not size.isdecimal():
            return 411, "how long is it?"
        return (413, f"more than {MOST_BYTES:,} bytes: shorten the texts") if int(size) > MOST_BYTES else None


def host_of(header: str) -> str:
    """Take the name from a header `Host`, without the port.

    >>> host_of("LocalHost:7860"), host_of("[::1]:7860"), host_of("[")
    ('localhost', '::1', '')
    """
    try:
        return urlsplit(f"//{header}").hostname or ""
    except ValueError:
        return ""


def hosts_of(host: str, *, share: bool) -> frozenset[str] | None:
    """Name the hosts under which a page is reached; None if they cannot be known.

    Args:
        host: Address to listen on.
        share: Whether Gradio gives the page a public address, too.
    """
    own = host.strip("[]").lower()
    return None if share or own in EVERY_ADDRESS else frozenset({*OWN_NAMES, own})


async def answer(send: Any, status: int, text: str) -> None:
    """Answer with a line of text."""
    headers = [(b"content-type", b"text/plain; charset=utf-8")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": f"{text}\n".encode()})
