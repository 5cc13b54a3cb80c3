"""Listening for signals."""

import os
import signal
import threading

import pytest

from tercet.data.steps.interruption import listening


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_noted_and_the_earlier_handlers_return(number):
    before = signal.getsignal(number)
    with listening() as interruption:
        assert interruption.name is None
        os.kill(os.getpid(), number)
        assert interruption.name == number.name
    assert signal.getsignal(number) == before


def test_a_second_interrupt_acts_at_once():
    with listening():
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_beside_the_main_thread_nothing_is_heard():
    heard = []

    def listen():
        with listening() as interruption:
            heard.append(interruption.name)

    thread = threading.Thread(target=listen)
    thread.start()
    thread.join()
    assert heard == [None]
