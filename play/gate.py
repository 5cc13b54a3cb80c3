"""What stands before Gradio: requests that the page does not send are refused.

A page on `127.0.0.1` is reached from this machine alone, but a browser on it opens other people's pages, too.
Such a page may let its own name stand for 127.0.0.1 ("DNS rebinding") and talk to this one. It cannot hide
the name: it stands in the header `Host`, which is therefore compared with the names of this machine. Gradio
has more endpoints than the page uses, such as one that keeps whatever file is sent to it.
"""

import sys
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit

from ..interop.messages import first_line

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
        """Give the status and the reason of a request that is refused."""
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
