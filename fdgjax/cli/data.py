"""Fetches a data set, with its licence and size first.

    fdgjax data                       lists what can be fetched
    fdgjax data NAME --dir DATA       fetches it into DATA, which is then config.data.dir

A command that was stopped continues with the files it already has; a data set that is already there is verified
instead. Archives are kept in DATA/downloads/NAME until they are unpacked; an archive fetched by other means may be put
there. DATA/downloads/NAME/fetched.txt records the checksums of the files that were fetched.
"""

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from fdgjax.data.download.install import download_folder, get, verified_already
from fdgjax.data.download.release import Release, amount
from fdgjax.data.download.releases import RELEASES
from fdgjax.data.sources.loading import DATASETS
from fdgjax.utils.command import STOPPED, command
from fdgjax.utils.errors import UserError
from fdgjax.utils.registry import lookup


@command
def main(argv: Sequence[str]) -> int:
    """Runs the command.

    Returns:
      The exit status: 0 when done, 2 for a mistake or a failure, 130 when stopped by Ctrl-C.
    """
    args = parser().parse_args(argv[1:])
    if not args.name:
        print("\n".join(listing(RELEASES)))
        return 0
    release = release_of(args.name)
    if not args.dir:
        raise UserError(
            f"no --dir; expected the folder that shall hold {release.folder}/: fdgjax data {args.name} --dir DATA"
        )
    if args.mirror and not args.mirror.startswith(("http://", "https://")):
        raise UserError(f"the mirror {args.mirror} is no address; expected http://... or https://...")
    base = Path(args.dir).expanduser().absolute()
    downloads = base / "downloads" / args.name
    print("\n".join(about(args.name, release)), flush=True)
    try:
        return bring(release, base, downloads, args)
    except KeyboardInterrupt:
        print(f"stopped; the same command goes on with what is in {downloads}")
        return STOPPED


def release_of(name: str) -> Release:
    """The release that is fetched for a data set, by its own name or by that of the data set.

    Raises:
      UserError: there is none.
    """
    of_data_sets = {release.data_set: release for release in RELEASES.values()}
    if name in DATASETS and name not in of_data_sets:
        raise UserError(f"data set '{name}' has nothing to be fetched; expected one of: {', '.join(RELEASES)}")
    return lookup("data set to fetch", name, {**of_data_sets, **RELEASES})


def parser() -> argparse.ArgumentParser:
    """The command's arguments."""
    made = argparse.ArgumentParser(
        prog="fdgjax data", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("name", nargs="?", metavar="NAME", help=f"one of: {', '.join(RELEASES)}; without it, a list")
    made.add_argument("--dir", default="", help="folder that shall hold the data set's own (config.data.dir)")
    made.add_argument("--mirror", default="", metavar="URL", help="the files are URL/FILE; no other server is asked")
    made.add_argument("--yes", action="store_true", help="do not ask whether licence and size are accepted")
    made.add_argument("--keep", action="store_true", help="keep the archives after they are unpacked")
    return made


def bring(release: Release, base: Path, downloads: Path, args: argparse.Namespace) -> int:
    """Verifies the data set if it is there, else fetches it; returns the exit status."""
    if said := verified_already(release, base):
        print(f"{base / release.folder} is there: {said}")
        return 0
    if not args.yes and not agreed():
        print("nothing was fetched")
        return 0
    with download_folder(downloads) as work:
        said = verified_already(release, base)  # another process may have been faster
        verb = "is there" if said else "is fetched and verified"
        said = said or get(release, base, work, args.mirror, args.keep)
    print(f"{base / release.folder} {verb}: {said}\nuse it with --config.data.dir={base}")
    return 0


def agreed() -> bool:
    """Asks at the terminal whether to fetch the data set.

    Raises:
      UserError: there is no terminal.
    """
    if sys.stdin is None or not sys.stdin.isatty():
        raise UserError("nobody can be asked whether licence and size are accepted; expected a terminal, or --yes")
    try:
        return input("fetch it? [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        return False


def about(name: str, release: Release) -> Iterator[str]:
    """What a user should know before fetching, the licence first."""
    yield f"{name}{': ' + release.remark if release.remark else ''}"
    yield f"  licence  {release.licence}"
    yield f"  size     {amount(release.size)} to fetch, {amount(release.unpacked)} unpacked" + (
        f", {release.images:,} {release.samples}" if release.images else ""
    )
    yield f"  known by {release.pinned}"
    for file in release.files:
        yield f"  file     {file.name} ({amount(file.size)}) at {', '.join(file.urls)}"


def listing(releases: Mapping[str, Release]) -> Iterator[str]:
    """A line for each data set: name, bytes to fetch, how the files are identified, licence."""
    yield f"{'name':18s}{'size':>9s}  {'known by':22s}licence"
    for name, release in releases.items():
        yield f"{name:18s}{amount(release.size):>9s}  {release.pinned:22s}{release.licence}"
