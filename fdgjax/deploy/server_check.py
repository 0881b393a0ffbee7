"""Before a node starts: whether it would trust the server's certificate, and whether their clocks agree.

Flower's SuperNode refuses a certificate in several lines; one whose clock differs is refused by the SuperLink, and ends
as if it had been stopped.
"""

import argparse
import http.client
import logging
import ssl
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import NamedTuple

from fdgjax.utils.errors import UserError

PATIENCE_SECONDS = 10.0
MOST_AHEAD, MOST_BEHIND = 5.0, 300.0
"""Seconds by which Flower 1.41 lets a node's clock be ahead of the server's or behind it."""
SOON_DAYS = 7
DAY = 86400.0


class Greeting(NamedTuple):
    """What a server says of itself. date: its clock, in whole seconds since 1970; None if it does not tell.
    ends: when its certificate does, None without TLS. before, after: this machine's clock, when asked and answered."""

    date: float | None
    ends: float | None
    before: float
    after: float


def check_server(words: Sequence[str]) -> None:
    """Checks the server of a SuperNode with these words; one that does not answer is not checked, as the SuperNode
    waits for it.

    Raises:
      UserError: a certificate that is not trusted, or clocks that differ by more than Flower allows.
    """
    from flwr.supercore.address import parse_address

    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--superlink", default="")
    parser.add_argument("--root-certificates", default="")
    parser.add_argument("--insecure", action="store_true")
    known, _ = parser.parse_known_args(list(words))
    address = parse_address(known.superlink)
    if address is None:
        return
    host, port, _ = address
    greeting = greeting_of(host, port, known.root_certificates, tls=not known.insecure)
    if greeting is None:
        return
    if greeting.date is not None:
        check_clock(greeting.date, greeting, known.superlink)
    if greeting.ends is not None and greeting.ends - greeting.after < SOON_DAYS * DAY:
        logging.getLogger("fdgjax").warning(
            "the certificate of %s ends on %s; ask its operator for a new one", known.superlink, in_utc(greeting.ends)
        )


def greeting_of(host: str, port: int, authority: str, *, tls: bool) -> Greeting | None:
    """What a server says of itself; None if it does not answer. Raises like `check_server`."""
    connection: http.client.HTTPConnection = http.client.HTTPConnection(host, port, timeout=PATIENCE_SECONDS)
    if tls:
        context = trusting(authority)
        connection = http.client.HTTPSConnection(host, port, context=context, timeout=PATIENCE_SECONDS)
    before, ends = time.time(), None
    try:
        connection.connect()
        if isinstance(connection.sock, ssl.SSLSocket):
            ends = ssl.cert_time_to_seconds(str((connection.sock.getpeercert() or {})["notAfter"]))
        connection.request("HEAD", "/")
        date = connection.getresponse().getheader("Date")
    except ssl.SSLCertVerificationError as error:
        raise UserError(
            f"the certificate of {host}:{port} is not trusted ({error.verify_message}); expected one that "
            f"{authority or 'this system'} vouches for and that is valid on {in_utc(time.time())}, this machine's "
            "time; correct the clock, or get a new certificate from the server's operator"
        ) from error
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()
    return Greeting(None if date is None else parsedate_to_datetime(date).timestamp(), ends, before, time.time())


def trusting(authority: str) -> ssl.SSLContext:
    """A context that trusts the authority in a file, those of the system for ''.

    Raises:
      UserError: no such file, or no certificate in it.
    """
    try:
        return ssl.create_default_context(cadata=Path(authority).expanduser().read_text() if authority else None)
    except (OSError, ValueError) as error:
        raise UserError(
            f"--root-certificates got '{authority}' ({error.strerror if isinstance(error, OSError) else error}); "
            "expected the server's ca.crt; ask its operator for it"
        ) from error


def check_clock(date: float, greeting: Greeting, server: str) -> None:
    """Raises a `UserError` if this machine's clock certainly differs by more than Flower allows."""
    ahead, behind = greeting.before - date - 1, date - greeting.after  # the date is in whole seconds
    if ahead > MOST_AHEAD or behind > MOST_BEHIND:
        raise UserError(
            f"this machine's clock says {in_utc(greeting.after)}, and that of {server} {in_utc(date)}; expected at "
            f"most {MOST_AHEAD:.0f} seconds more or {MOST_BEHIND:.0f} less, or Flower refuses the node; set the clock, "
            "as by timedatectl set-ntp true"
        )


def in_utc(seconds: float) -> str:
    """A time in words."""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"
