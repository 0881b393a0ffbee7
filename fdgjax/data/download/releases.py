"""The releases of data sets: addresses, terms and checksums.

Checksums are those that several public projects pin independently, or were computed from the data; docs/data.md says
which were compared with real data. For a file without a known checksum, that of its first download is recorded.
"""

from collections.abc import Mapping

from fdgjax.data.download.archives import as_they_are, camera_traps, images_of, parquet_images
from fdgjax.data.download.release import File, Release
from fdgjax.data.download.tables import tables_of
from fdgjax.data.sources.heart_disease import COLUMNS, HOSPITALS, LABEL
from fdgjax.data.sources.layouts import LAYOUTS

VISDA = "csr.bu.edu/ftp/visda/2019/multi-source/"
LILA = ("storage.googleapis.com/public-datasets-lila", "lilawildlife.blob.core.windows.net/lila-wildlife")
PACS_AT = "hf://datasets/flwrlabs/pacs@394113073258ead631f617d2e13bb377c0715c4b/data/train-00000-of-00001.parquet"


def drive(identity: str) -> str:
    """The address of a public file at Google Drive, skipping its virus-scan warning."""
    return f"https://drive.usercontent.google.com/download?id={identity}&export=download&confirm=t"


def of_lila(name: str, size: int) -> File:
    """One of Caltech Camera Traps' files."""
    return File(name, size, tuple(f"https://{at}/caltechcameratraps/{name}" for at in LILA), exact=True)


def of_domainnet(name: str, size: int, md5: str, below: str = "") -> File:
    """One of DomainNet's six archives; the cleaned versions of clipart and painting are `below` another folder."""
    return File(name, size, tuple(f"{way}://{VISDA}{below}{name}" for way in ("https", "http")), f"md5:{md5}")


MNIST = tuple(
    File(
        f"{name}-ubyte.gz",
        size,
        (
            f"https://storage.googleapis.com/cvdf-datasets/mnist/{name}-ubyte.gz",
            f"https://ossci-datasets.s3.amazonaws.com/mnist/{name}-ubyte.gz",
        ),
        f"sha256:{sha256}",
    )
    for name, size, sha256 in (
        ("train-images-idx3", 9_912_422, "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"),
        ("train-labels-idx1", 28_881, "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"),
        ("t10k-images-idx3", 1_648_877, "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"),
        ("t10k-labels-idx1", 4_542, "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"),
    )
)

DOMAINNET = Release(
    data_set="domainnet",
    folder="domainnet",
    licence="for research, under fair use; no rights of the images are given (Peng et al., 2019; ai.bu.edu/M3SDA)",
    files=(
        of_domainnet("clipart.zip", 1_270_000_000, "cd0d8f2d77a4e181449b78ed62bccf1e", below="groundtruth/"),
        of_domainnet("infograph.zip", 4_000_000_000, "720380b86f9e6ab4805bb38b6bd135f8"),
        of_domainnet("painting.zip", 3_700_000_000, "1ae32cdb4f98fe7ab5eb0a351768abfd", below="groundtruth/"),
        of_domainnet("quickdraw.zip", 460_000_000, "bdc1b6f09f277da1a263389efe0c7a66"),
        of_domainnet("real.zip", 6_062_039_589, "dcc47055e8935767784b7162e7c7cca6"),
        of_domainnet("sketch.zip", 2_633_992_926, "658d8009644040ff7ce30bb2e820850f"),
    ),
    unpacked=19_000_000_000,
    images=0,
    assemble=images_of(LAYOUTS["domainnet"]),
    remark="the cleaned version, about 587,000 images",
)

HEART_DISEASE = Release(
    data_set="heart_disease",
    folder="heart_disease",
    licence="CC BY 4.0 (Janosi, Steinbrunn, Pfisterer, Detrano, 1988; UCI, doi.org/10.24432/C52P4X)",
    files=(File("heart+disease.zip", 128_894, ("https://archive.ics.uci.edu/static/public/45/heart+disease.zip",)),),
    unpacked=39_878,
    images=920,
    assemble=tables_of({names[1]: hospital for hospital, names in HOSPITALS.items()}, COLUMNS),
    tree="66a1475b27b273e56c1dcd18d078fef0a502bb6a2f214cf8cd687c305183cd8c",
    remark="four hospitals; missing values are ?, num is 0 (absent) to 4, in Hungary 0 or 1",
    label=LABEL,
)

RELEASES: Mapping[str, Release] = {
    "pacs": Release(
        data_set="pacs",
        folder="PACS",
        licence="none stated; from Caltech256, Sketchy, TU-Berlin and Google Images, for research (Li et al., 2017)",
        files=(
            File(
                "PACS.parquet",
                191_395_900,
                (PACS_AT,),
                "sha256:4fc041ee92eec6043fe6e2859e8bdd138e5f958bc621afd153879812cbe65ff5",
            ),
        ),
        unpacked=191_000_000,
        images=9_991,
        assemble=parquet_images(LAYOUTS["pacs"]),
        remark="Hugging Face's flwrlabs/pacs",
    ),
    "office_caltech10": Release(
        data_set="office_caltech10",
        folder="office_caltech_10",
        licence="none stated; from Office (Saenko et al., 2010) and Caltech-256, for research (Gong et al., 2012)",
        files=(
            File(
                "Office_Caltech_DA_Dataset-main.zip",
                55_000_000,
                ("https://github.com/ChristophRaab/Office_Caltech_DA_Dataset/archive/refs/heads/main.zip",),
            ),
        ),
        unpacked=55_275_304,
        images=2_533,
        assemble=images_of(LAYOUTS["office_caltech10"]),
        tree="43f4611c23f05f668976b252c578206cca0debffa9030bc15906a21b4a7322ad",
        remark="GitHub's ChristophRaab/Office_Caltech_DA_Dataset",
    ),
    "vlcs": Release(
        data_set="vlcs",
        folder="VLCS",
        licence="none stated; from Caltech101, LabelMe, SUN09 and VOC2007, for research (Fang et al., 2013)",
        files=(
            File(
                "VLCS.tar.gz",
                3_600_000_000,
                (drive("1skwblH1_okBwxWxmRsp9_qi15hyPpxg8"),),
                "md5:8870171eba660927d9668f4e515928e4",
            ),
        ),
        unpacked=3_700_000_000,
        images=10_729,
        assemble=images_of(LAYOUTS["vlcs"]),
        remark="DomainBed's archive",
    ),
    "office_home": Release(
        data_set="office_home",
        folder="office_home",
        licence="for non-commercial research and education (Venkateswara et al., 2017; hemanthdv.org)",
        files=(
            File(
                "OfficeHomeDataset_10072016.zip",
                1_100_000_000,
                (
                    drive("1uY0pj7oFsjMxRwaD3Sxy0jgel0fsYXLC"),
                    "https://cornell.box.com/shared/static/xwsbubtcr8flqfuds5f6okqbr3z0w82t",
                ),
                "md5:b1c14819770c4448fd5b6d931031c91c",
            ),
        ),
        unpacked=1_200_000_000,
        images=15_588,
        assemble=images_of(LAYOUTS["office_home"]),
    ),
    "terra_incognita": Release(
        data_set="terra_incognita",
        folder="terra_incognita",
        licence="CDLA-Permissive-1.0 (Caltech Camera Traps; Beery et al., 2018; lila.science)",
        files=(
            of_lila("eccv_18_annotations.tar.gz", 2_997_071),
            of_lila("eccv_18_all_images_sm.tar.gz", 6_492_615_601),
        ),
        unpacked=6_600_000_000,
        images=0,
        assemble=camera_traps(LAYOUTS["terra_incognita"], "eccv_18_annotations.tar.gz", "eccv_18_all_images_sm.tar.gz"),
        remark="four locations and ten categories, as DomainBed picks them; about 24,000 images",
    ),
    "domainnet": DOMAINNET,
    "domainnet10": DOMAINNET._replace(
        data_set="domainnet10",
        unpacked=700_000_000,
        assemble=images_of(LAYOUTS["domainnet10"]),
        remark="all six archives are fetched, ten classes of them are kept",
    ),
    "mnist": Release(
        data_set="rotated_mnist",
        folder="mnist",
        licence="CC BY-SA 3.0, as is commonly stated (LeCun, Cortes and Burges)",
        files=MNIST,
        unpacked=11_594_722,
        images=0,
        assemble=as_they_are,
    ),
    "heart_disease": HEART_DISEASE,
}
"""What `fdgjax data` fetches, by the name it takes."""
