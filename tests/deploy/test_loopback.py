"""What a federation on loopback starts is ended with it; keys are good for what they are made for."""

import ssl
import sys
from pathlib import Path

import pytest

from fdgjax.utils.errors import UserError
from tests.deploy.loopback import Place, Secured, free_port, processes, start, still_there

STARTS_ANOTHER = "import subprocess, time; subprocess.Popen(['sleep', '60'], start_new_session=True); time.sleep(60)"


@pytest.mark.slow
def test_no_process_is_left_behind_however_the_block_ends(tmp_path: Path) -> None:
    place = Place(tmp_path, free_port(), Secured())

    def interrupted() -> None:
        with processes(tmp_path) as keep:
            process = keep(start(place, "one", [sys.executable, "-c", STARTS_ANOTHER]))
            while len(still_there(tmp_path)) < 2:
                assert process.poll() is None
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert still_there(tmp_path) == []


def test_the_authority_signs_the_servers_certificate_and_private_keys_are_private(tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    from cryptography.hazmat.primitives import serialization

    from fdgjax.deploy.keys import make_keys

    long = f"{'a' * 40}.{'b' * 40}.example"
    make_keys(tmp_path, 1, [long, "server.example"], 8123)
    context = ssl.create_default_context(cafile=str(tmp_path / "ca.crt"))
    context.verify_flags |= ssl.VERIFY_X509_STRICT  # Python's default from 3.13 on
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(tmp_path / "server.pem", tmp_path / "server.key")
    for host in (long, "server.example", "localhost", "127.0.0.1", "elsewhere.example"):
        assert shakes_hands(context, server, host) is (host != "elsewhere.example")
    assert {(tmp_path / name).stat().st_mode & 0o077 for name in ("server.key", "client0")} == {0}
    private = serialization.load_ssh_private_key((tmp_path / "client0").read_bytes(), None)
    public = serialization.load_ssh_public_key((tmp_path / "client0.pub").read_bytes())
    assert private.public_key() == public
    with pytest.raises(UserError, match="has keys already"):
        make_keys(tmp_path, 1, ["server.example"], 8123)
    for host in ("", "münchen.example"):
        with pytest.raises(UserError, match="expected a name or address in ASCII"):
            make_keys(tmp_path / "new", 1, [host], 8123)
    assert not (tmp_path / "new").exists()


def shakes_hands(client: ssl.SSLContext, server: ssl.SSLContext, host: str) -> bool:
    """Whether a client of the authority trusts the server at a host."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [client.wrap_bio(down, up, server_hostname=host), server.wrap_bio(up, down, server_side=True)]
    for _ in range(4):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLCertVerificationError:
                return False
    return True
