"""The first signal is answered at once, and the second ends the process, whatever its main thread is doing."""

import os
import signal
import subprocess
import sys
import threading

import pytest

from fdgjax.utils.signals import SAVING, save_on_signals

BUSY = """
import hashlib, threading
from fdgjax.utils.signals import save_on_signals
with save_on_signals(threading.Event(), lambda text: print(text, flush=True)):
    print("begun", flush=True)
    hashlib.pbkdf2_hmac("sha256", b"a", b"b", 2**31 - 1)  # one call in C, for minutes
    print("over", flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_main_thread_busy_in_c_delays_neither(number: int) -> None:
    with subprocess.Popen([sys.executable, "-c", BUSY], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        try:
            assert process.stdout.readline() == "begun\n"
            process.send_signal(number)
            assert process.stdout.readline() == f"{SAVING}\n"
            process.send_signal(number)
            assert process.stdout.read() == ""
            assert process.wait() == 128 + number
        finally:
            process.kill()


def test_the_first_signal_requests_a_stop_and_the_block_leaves_no_trace() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    stop, said = threading.Event(), list[str]()
    with save_on_signals(stop, said.append) as received:
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.wait(60)
    assert received == [signal.SIGTERM]
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before
    assert signal.set_wakeup_fd(-1) == -1
