import os
import signal
import threading

import pytest

from lawful.training.loop import handle_signals


def test_the_first_is_a_wish_and_the_second_interrupts():
    said, before = [], signal.getsignal(signal.SIGINT)

    def twice():
        with handle_signals(said.append) as wish:
            assert not wish
            os.kill(os.getpid(), signal.SIGINT)
            assert wish
            assert wish.by == "SIGINT"
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        twice()
    assert said == ["stopping after this step; once more to stop at once"]
    assert signal.getsignal(signal.SIGINT) is before


def test_a_print_that_cannot_be_begun_twice_ends_nothing():
    def say(text):
        raise RuntimeError("reentrant call")

    with handle_signals(say) as wish:
        os.kill(os.getpid(), signal.SIGTERM)
        assert wish.by == "SIGTERM"


def test_in_a_thread_signals_are_left_alone():
    found = []

    def body():
        with handle_signals(found.append) as wish:
            found.append((bool(wish), signal.getsignal(signal.SIGINT)))

    before = signal.getsignal(signal.SIGINT)
    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    assert found == [(False, before)]
