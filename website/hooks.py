"""MkDocs' hooks: the pages that are made, their places in the navigation, and links that lead there."""

from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from website.links import ROOT, rewritten, slug
from website.pages import PACKAGES, made, place, settings


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """The navigation with the pages that are made."""
    of = {title: pages for entry in config.nav or [] for title, pages in entry.items()}
    of["Methods"][1:1] = [{title: f"methods/{slug(title)}.md"} for title in dict.fromkeys(settings().values())]
    of["API"] += [{package: f"reference/{package}.md"} for package in PACKAGES]
    of["How to"] += [{"Notebooks": [{name: f"notebooks/{name}.md"} for name in ("quickstart", "your_own_method")]}]
    of["Results"] += [{"Changes": "changelog.md"}]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """The pages that are made."""
    for there, (source, text) in made().items():
        content = text if there.startswith(("source/", "reference/")) else rewritten(text, source, there, place)
        files.append(File.generated(config, there, content=content))
    files.append(File.generated(config, "site.css", abs_src_path=str(ROOT / "website" / "site.css")))
    return files


def on_page_markdown(markdown: str, page: Page, **kwargs: Any) -> str:
    """The pages of docs with links that lead to the site's."""
    if page.file.generated_by:
        return markdown
    return rewritten(markdown, f"docs/{page.file.src_uri}", page.file.src_uri, place)
