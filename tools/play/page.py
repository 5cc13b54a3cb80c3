"""The page: one tab for each ability, with fields on top and the answers of all models below.

Gradio serves it. Nothing of it comes from the network, and nothing is reported to anybody. It has the colours
of the reports, in light and dark, and one column on phones.

It is bound to 127.0.0.1. A browser opens other people's pages, too. Such a page may let its own name stand
for 127.0.0.1 ("DNS rebinding"), but cannot hide the name from the header `Host`, which is compared with
`OWN_NAMES`. It may also send requests to this address, as may one on another port of this machine. Then the
browser says in `Origin` whose page sends them, and `OwnPage` refuses them.
"""

import os
import warnings
from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import Any

from ...reports.blocks import Result
from ...reports.page import template
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
    """Build the page of a session, a `gradio.Blocks`."""
    import gradio

    warnings.filterwarnings("ignore", module=r"gradio\b")  # what it says of its own code
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
    with gradio.Accordion("Settings", open=False, elem_classes="settings"), gradio.Row():
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
        gradio.Examples(
            rows, [texts[number] for number in shown], cache_examples=False, api_visibility="private"
        )


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


OWN_NAMES = ["localhost", "127.0.0.1"]
"""Hosts under which the page is reached."""


class OwnPage:
    """Pass on what the page itself sends to an application (ASGI), and refuse what other pages send.

    Browsers name in `Origin` the page that sends a request, unless the request only follows a link or fetches
    a picture. Other programs name none. The page shows no files: Gradio's paths to them, by which it also
    fetches from other addresses, are closed.
    """

    CLOSED = ("file=", "proxy=")

    def __init__(self, app: Any):
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        from starlette.datastructures import Headers
        from starlette.responses import PlainTextResponse

        headers = Headers(raw=scope.get("headers", []))
        own = f"http://{headers.get('host', '')}"
        is_closed = any(f"/{start}" in scope.get("path", "") for start in self.CLOSED)
        if headers.get("origin", own).lower() == own.lower() and not is_closed:
            await self.app(scope, receive, send)
        else:
            refusal = PlainTextResponse("this page answers requests of its own alone", status_code=403)
            await refusal(scope, receive, send)


def settings() -> dict[str, Any]:
    """Return the arguments of `gradio.Blocks.launch` that the page has wherever it runs."""
    return {
        "theme": theme(),
        "css": template("play.css").render(),
        "max_file_size": 0,
        "quiet": True,
        "footer_links": [],
        "ssr_mode": False,
        "enable_monitoring": False,
    }


def serve(session: Session, *, port: int | None = None, wait: bool = True) -> tuple[Any, str]:
    """Serve the page to this machine alone, and give it with its address.

    Args:
        port: Port to listen on; by default, and for 0, the first free one from 7860.
        wait: Return only when the user interrupts.
    """
    from starlette.middleware import Middleware  # of Gradio
    from starlette.middleware.trustedhost import TrustedHostMiddleware

    page = build_page(session)
    try:
        _, address, _ = page.launch(
            server_name="127.0.0.1",
            server_port=port or None,
            share=False,
            prevent_thread_lock=True,
            app_kwargs={
                "middleware": [
                    Middleware(TrustedHostMiddleware, allowed_hosts=OWN_NAMES),
                    Middleware(OwnPage),
                ]
            },
            **settings(),
        )
    except (OSError, OverflowError) as error:
        ports = "any port from 7860 on" if port is None else f"port {port}"
        raise ValueError(
            f"{ports} is taken, not permitted or not from 1 to 65535: choose another --port"
        ) from error
    if wait:
        print(f"{address}  (Ctrl-C ends the page)", flush=True)
        page.block_thread()
    return page, address
