"""What loading data uses of torch and Python without its being public: no other module does."""

import multiprocessing
from collections.abc import Callable
from multiprocessing.queues import Queue
from typing import Any


def call_on_unsent(handle: Callable[[Exception, object], None]) -> None:
    """Let queues of this process call `handle` with what they could not send, instead of printing it."""
    Queue._on_queue_feeder_error = staticmethod(handle)  # pyright: ignore[reportAttributeAccessIssue]


def renew_end_of_workers(loader: Any) -> None:
    """Give a data loader's iterator a new signal of its end, whose lock no killed worker holds."""
    loader._workers_done_event = multiprocessing.Event()
