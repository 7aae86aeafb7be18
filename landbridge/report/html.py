"""Pages and tables of self-contained reports. Every text is escaped here; bodies are markup made here too."""

from __future__ import annotations

import html
from collections.abc import Sequence

# Nothing may be loaded, whatever a label in the data says.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
_STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #5c6570; --line: #d5dae0; --paper: #ffffff; --wash: #f4f6f8;
  --c0: #1f6fd0; --c1: #c65a11; --c2: #2f8a57; --c3: #8650a8; --good: #1d7a46; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ed; --soft: #9aa5b1; --line: #3a424c; --paper: #15181c;
  --wash: #1e2329; --c0: #6aa9f4; --c1: #f0914d; --c2: #63c08d; --c3: #bd90dc; --good: #63c08d; } }
body { margin: 0 auto; padding: 2rem 1.25rem 4rem; max-width: 60rem; background: var(--paper); color: var(--ink);
  font: 16px/1.55 system-ui, sans-serif; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 .3rem; } h2 { font-size: 1.2rem; margin: 2.5rem 0 .6rem; }
p { max-width: 44rem; } .soft { color: var(--soft); }
.verdict { font-size: 1.25rem; font-weight: 600; margin: .6rem 0; }
.good { color: var(--good); }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .92rem; }
th, td { padding: .3rem .9rem .3rem 0; border-bottom: 1px solid var(--line); text-align: left; white-space: nowrap; }
th { color: var(--soft); font-weight: 500; } td.n, th.n { text-align: right; }
figure { margin: 1rem 0; } figcaption { color: var(--soft); font-size: .88rem; max-width: 44rem; }
svg { max-width: 100%; height: auto; } svg text { fill: var(--soft); font: 12px system-ui, sans-serif; }
code { font-size: .88em; } summary { cursor: pointer; color: var(--soft); margin: .5rem 0; }
.row { display: flex; flex-wrap: wrap; gap: 1.5rem; } button, select { font: inherit; padding: .2rem .7rem; }
"""


def escape(text: object) -> str:
    """Text as markup."""
    return html.escape(str(text))


def page(title: str, subtitle: str, sections: Sequence[str]) -> str:
    """A whole document."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>\n"
        f'<h1>{escape(title)}</h1><p class="soft">{escape(subtitle)}</p>\n' + "\n".join(sections) + "\n</body></html>\n"
    )


def section(heading: str, *bodies: str) -> str:
    """A heading and what is under it (markup)."""
    return f"<section><h2>{escape(heading)}</h2>\n" + "\n".join(bodies) + "</section>"


def paragraph(text: str, style: str = "") -> str:
    """``style``: ``soft``, ``verdict``, ``verdict good`` or none."""
    attribute = f' class="{escape(style)}"' if style else ""
    return f"<p{attribute}>{escape(text)}</p>"


def table(headers: Sequence[str], rows: Sequence[Sequence[object]], numeric: Sequence[int] = ()) -> str:
    """``numeric``: columns that are set to the right."""

    def line(cells: Sequence[object], tag: str) -> str:
        styled = [f'<{tag} class="n">' if place in numeric else f"<{tag}>" for place in range(len(cells))]
        return "<tr>" + "".join(f"{s}{escape(c)}</{tag}>" for s, c in zip(styled, cells, strict=True)) + "</tr>"

    body = "\n".join(line(row, "td") for row in rows)
    return f'<div class="wide"><table><thead>{line(headers, "th")}</thead><tbody>{body}</tbody></table></div>'


def figure(drawing: str, caption: str) -> str:
    """A drawing (markup) with its caption."""
    return f"<figure>{drawing}<figcaption>{escape(caption)}</figcaption></figure>"


def details(summary: str, body: str) -> str:
    """Folded until somebody wants it; ``body`` is markup."""
    return f"<details><summary>{escape(summary)}</summary>{body}</details>"
