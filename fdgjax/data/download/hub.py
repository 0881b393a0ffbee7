"""Files of the Hugging Face hub, pinned by revision and checksum.

`huggingface_hub` fetches them and keeps them in its own cache (`HF_HOME`); a cached file needs no network, and
`HF_HUB_OFFLINE=1` forbids network access. `HF_ENDPOINT` names a mirror.
"""

import os
from pathlib import Path

from fdgjax.utils import checksums
from fdgjax.utils.errors import UserError, reason_of

SCHEME = "hf://"


def from_hub(uri: str, sha256: str) -> Path:
    """The verified file `hf://[datasets/]OWNER/NAME@REVISION/FILE`, from the cache or else from the network.

    Raises:
      UserError: the file is not in the cache and cannot be fetched, or it has another checksum.
    """
    from huggingface_hub import hf_hub_download, parse_hf_uri

    at = parse_hf_uri(uri)
    try:
        path = hf_hub_download(
            at.id,
            at.path_in_repo,
            repo_type=at.type,
            revision=at.revision,
            endpoint=os.environ.get("HF_ENDPOINT"),
            token=False,  # no token is sent: the files are public
        )
    except Exception as error:  # the errors of its transports, which differ by version
        reason = reason_of(error)[:200]
        raise UserError(
            f"{uri} is not in the cache and cannot be fetched ({reason}); expected a network or a mirror in HF_ENDPOINT"
        ) from error
    if (got := checksums.sha256(Path(path))) != sha256:
        raise UserError(
            f"{uri} is the file {path} with the sha256 {got}; expected {sha256}: delete {Path(path).resolve()} and "
            f"{path}, and repeat the command"
        )
    return Path(path)
